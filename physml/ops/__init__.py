"""Recurrences with hand-written backward passes, one folder each: reference.py and function.py."""
