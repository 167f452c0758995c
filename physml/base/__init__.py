"""Exceptions and their wording, checks of arguments, folders, atomic writes, locks, streams of randomness."""
