"""One file per data set: its reader, and a tiny set in the upstream format. Without torch."""
