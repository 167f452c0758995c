"""Gradients by step, the papers' bounds on them, measures that a run logs, constructions of their proofs."""
