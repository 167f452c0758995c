"""Tables in words: what is seen first, and the rest."""
