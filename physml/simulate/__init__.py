"""Systems that figures show without any training. One file per system; a function returns (N, T, D)."""
