"""Data sets: where they are, how they are verified, read and cached."""
