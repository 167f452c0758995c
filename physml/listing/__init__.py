"""Models, tasks, tables and rows, with their state."""
