"""A recurrence under modReLU: ExpRNN."""
