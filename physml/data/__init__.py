"""What tasks are made of: batches, the task interface, cached and verified data."""
