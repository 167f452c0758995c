"""Where the runs of a command are made: on this machine, or by pilots that a cluster starts."""
