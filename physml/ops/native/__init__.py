"""What the compiled recurrences share: the compiler and its cache, pooled memory, headers of vectors and threads."""
