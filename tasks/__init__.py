"""Tasks: one file each. Configs name them; physml never imports them by name."""
