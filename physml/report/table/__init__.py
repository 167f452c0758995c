"""Tables: their spec, cells and text."""
