"""How fast the recurrences are: `python -m physml.bench`. Needs torch and numpy; for the plot, matplotlib."""
