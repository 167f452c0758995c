"""Systems that figures show without training."""
