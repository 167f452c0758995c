"""Recurrences and sums with hand-written backward passes, one folder each: reference.py, function.py."""
