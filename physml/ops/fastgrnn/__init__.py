"""The gated recurrence of FastGRNN."""
