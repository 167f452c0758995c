"""Searches of settings."""
