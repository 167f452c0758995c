"""A trained network to take away: weights or a graph, with its card, its config and a loader."""
