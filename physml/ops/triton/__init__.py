"""Shared by Triton backends: whether they run here, block sizes, small functions, CUDA graphs.

Kernels lie in `*_kernels` and `functions`. What imports them, and so Triton, is itself imported at the first
call, so that a machine without Triton never notices.
"""
