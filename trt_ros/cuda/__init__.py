"""Memory, streams, events, graphs and kernels on cuda-python, which only this package imports."""
