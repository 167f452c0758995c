"""Many runs: what is missing, processes, pilots, clusters."""
