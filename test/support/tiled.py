"""The demo's detector for batches, and large pictures of small shapes."""

from pathlib import Path

from demo.scene import draw_scene
import numpy as np
import onnx

from support.save_network import save
from trt_ros.demo import MODEL


def with_batch(path: Path, batch: int | str) -> Path:
    """Write the demo's detector with another batch size, or a dynamic one by its name."""
    model = onnx.load(MODEL)
    for value in (*model.graph.input, *model.graph.output):
        size = value.type.tensor_type.shape.dim[0]
        if isinstance(batch, str):
            size.dim_param = batch
        else:
            size.dim_value = batch
    del model.graph.value_info[:]
    save(model, path)
    return path


def mosaic(seed: int, columns: int = 6, rows: int = 4) -> np.ndarray:
    """Draw scenes of 640x540 side by side, by default 4K, (H, W, 3) BGR."""
    scenes = [
        draw_scene(np.random.default_rng([7, seed, index]), (640, 540))[0]
        for index in range(columns * rows)
    ]
    starts = range(0, len(scenes), columns)
    return np.vstack([np.hstack(scenes[start : start + columns]) for start in starts])
