"""What compiled recurrences share: compiler and cache, pooled memory, headers for vectors and threads."""
