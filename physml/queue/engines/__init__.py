"""Engines, which make the runs of a command: on this machine, or by pilots that a cluster starts."""
