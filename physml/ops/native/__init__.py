"""Shared by compiled ops: compiler and cache, pooled memory, headers for vectors and threads."""
