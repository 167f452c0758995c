"""Numbers over runs, and what may be said of them."""
