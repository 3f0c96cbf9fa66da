"""A detector of drawn shapes, and a video of them."""

from pathlib import Path

MODEL = Path(__file__).with_name('shapes.onnx')
VIDEO = MODEL.with_suffix('.mp4')
