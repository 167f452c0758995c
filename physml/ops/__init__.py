"""Recurrences and sums with hand-written backward passes, a folder each.

In it: reference.py, autograd.py (backend torch), native.py (C) and triton.py.
"""
