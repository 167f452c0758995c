"""Recurrent layers, and the network around them."""
