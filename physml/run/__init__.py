"""One run: its place, one attempt at it, its record and weights."""
