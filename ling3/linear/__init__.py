"""Quantised matrices, and the pool of threads that multiplies them; knows nothing of layers."""
