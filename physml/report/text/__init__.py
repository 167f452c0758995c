"""One document in several formats."""
