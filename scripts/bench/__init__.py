"""How fast the recurrences are: `python -m scripts.bench`. Needs torch, numpy; for the plot, matplotlib."""
