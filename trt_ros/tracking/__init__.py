"""Tracking of detected boxes over time, by the times of their images; NumPy and SciPy only."""
