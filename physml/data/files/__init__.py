"""Files of unknown origin, opened with limits: archives, pickles, arrays."""
