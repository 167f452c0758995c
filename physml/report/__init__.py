"""Tables and figures from records. No torch, no hydra."""
