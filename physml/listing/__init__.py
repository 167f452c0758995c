"""What there is: models, tasks, tables, rows, with their state."""
