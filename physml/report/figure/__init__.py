"""Figures: their spec, data and drawing."""
