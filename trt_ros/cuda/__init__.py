"""The only door to cuda-python: memory, streams, events, graphs, kernels."""
