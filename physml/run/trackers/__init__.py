"""Copies of runs at W&B and MLflow."""
