"""What the Triton backends share: can they run here, block sizes, small functions, CUDA graphs.

Only the modules `*_kernels` and `functions` import Triton, and they are imported at the first call, so that
a machine without Triton never notices.
"""
