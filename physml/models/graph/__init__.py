"""Layers on graphs, and the network around them."""
