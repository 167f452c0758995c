"""Campaigns of many seeded rounds: kills, command lines, YAML, data files, shared folders.

`python -m scripts.campaign --help` names them. Developers run them in a checkout.
"""
