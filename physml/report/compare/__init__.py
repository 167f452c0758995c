"""Comparison of rows, and of a run with its repetition."""
