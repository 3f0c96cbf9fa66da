"""Rendered pairs of rectified images, and a network that finds their disparity exactly."""

from pathlib import Path

import cv2
import numpy as np
import yaml

from support.bundles import write_bundle
from support.save_network import save_network
from trt_ros.vision.depth_points import Intrinsics
from trt_ros.vision.lens import Lens

CAMERA = Intrinsics(120.0, 120.0, 79.5, 47.5, (160, 96))
BASELINE = 0.2
NEAR, FAR = 1.0, 2.0  # Meters: disparities of 24 and 12 pixels.
MAX_DISPARITY = 32


def _lens(turn: tuple[float, float, float], model: str, *d: float) -> Lens:
    rotation = tuple(cv2.Rodrigues(np.array(turn))[0].ravel().tolist())
    count = 4 if model == 'equidistant' else 12
    target = CAMERA.fx, CAMERA.fy, CAMERA.cx, CAMERA.cy
    return Lens(
        (112.0, 114.0, 82.0, 45.5), (*d, *[0.0] * (count - len(d))), rotation, target, model
    )


#: Cameras whose rectified images are those of CAMERA.
LENSES = {
    'plumb_bob': _lens((0.02, -0.03, 0.04), 'plumb_bob', -0.3, 0.12, 0.002, -0.001, -0.02),
    'rational_polynomial': _lens(
        (-0.01, 0.02, -0.03), 'rational_polynomial', 0.4, 0.1, 0.001, 0.002, 0.02, 0.7, 0.2, 0.03
    ),
    'equidistant': _lens((0.02, 0.01, -0.02), 'equidistant', -0.05, 0.02, 0.001, -0.001),
}


def texture(x: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """Gray levels of 0 to 255 of a surface at any point, in meters."""
    rng = np.random.default_rng(seed)
    waves = rng.uniform(-45, 45, (12, 2))
    phases = rng.uniform(0, 6.28, 12)
    total = sum(np.sin(u * x + v * y + phase) for (u, v), phase in zip(waves, phases))
    return 127.5 + 127.5 * np.clip(total / 6, -1, 1)


def render(right: bool, lens: Lens | None = None) -> tuple[np.ndarray, np.ndarray]:
    """
    Render a slanted wall and a panel in front of it.

    :param lens: that of the camera, of a raw image.
    :returns: (H, W, 3) uint8, and (H, W) the exact depths in meters.
    """
    width, height = CAMERA.image_wh
    eye = BASELINE if right else 0.0
    a, b = np.meshgrid(
        (np.arange(width) - CAMERA.cx) / CAMERA.fx, (np.arange(height) - CAMERA.cy) / CAMERA.fy
    )
    if lens is not None:
        pixels = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1, dtype=np.float64)
        fx, fy, cx, cy = lens.k
        module = cv2.fisheye if lens.model == 'equidistant' else cv2
        rays = module.undistortPoints(
            pixels.reshape(-1, 1, 2),
            np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]),
            np.array(lens.d),
            R=np.reshape(lens.r, (3, 3)),
        )
        a, b = rays.reshape(height, width, 2).transpose(2, 0, 1)
    wall = (FAR + 0.2 * eye) / (1 - 0.2 * a)  # z = FAR + 0.2 x.
    gray = texture(eye + a * wall, b * wall, 1)
    x, y = eye + a * NEAR, b * NEAR
    is_panel = (abs(x) < 0.25) & (abs(y) < 0.2)
    gray = np.where(is_panel, texture(x, y, 2), gray)
    depth = np.where(is_panel, NEAR, wall)
    return np.repeat(np.rint(gray).astype(np.uint8)[..., None], 3, axis=2), depth


def visible(depth: np.ndarray, margin: int = 6) -> np.ndarray:
    """Pixels of the left image whose neighborhood both cameras see as one surface: (H, W) bool."""
    disparity = CAMERA.fx * BASELINE / depth

    def spread(height: int, width: int, anchor: tuple[int, int]) -> np.ndarray:
        kernel = np.ones((height, width), np.uint8)
        return cv2.dilate(disparity, kernel, anchor=anchor) - cv2.erode(
            disparity, kernel, anchor=anchor
        )

    # Left of a panel, the right camera does not see the wall.
    reach = 13 + margin
    seen = (spread(*[2 * margin + 1] * 2, (margin, margin)) < 2) & (spread(1, reach, (0, 0)) < 3)
    found = np.zeros(depth.shape, bool)
    inside = np.s_[margin:-margin, MAX_DISPARITY + margin : 1 - reach]
    found[inside] = seen[inside]
    return found


def save_stereo(path: Path, *, stacked: str = '') -> str:
    """
    Write a network of two images: squared differences for all shifts, averages of 5 x 5, and the
    lowest point of the parabola through the smallest average and its neighbors.

    :param stacked: 'axis': on one of their own; 'channels': in those of one input; '': two inputs.
    """
    width, height = CAMERA.image_wh
    nodes = {
        'channels': 'left, right = Split <axis = 1> (x) ',
        'axis': """left5, right5 = Split <axis = 1> (x)
            left = Squeeze(left5, one) right = Squeeze(right5, one) """,
        '': '',
    }[stacked]
    nodes += """left_gray = ReduceMean <axes = [1]> (left)
        right_gray = ReduceMean <axes = [1]> (right)
        padded = Pad <mode = "edge"> (right_gray, pads) """
    for shift in range(MAX_DISPARITY):
        nodes += f"""moved{shift} = Slice(padded, from{shift}, to{shift}, last)
            apart{shift} = Sub(left_gray, moved{shift}) """
    nodes += f"""apart = Concat <axis = 1> ({', '.join(f'apart{i}' for i in range(MAX_DISPARITY))})
        squares = Mul(apart, apart)
        costs = AveragePool <kernel_shape = [5, 5], pads = [2, 2, 2, 2]> (squares)
        lowest = ArgMin <axis = 1> (costs) above = Max(lowest, one) at = Min(above, end)
        before = Sub(at, one) after = Add(at, one)
        c_before = GatherElements <axis = 1> (costs, before)
        c_at = GatherElements <axis = 1> (costs, at)
        c_after = GatherElements <axis = 1> (costs, after)
        slope = Sub(c_before, c_after) sides = Add(c_before, c_after) twice = Add(c_at, c_at)
        bend = Sub(sides, twice) curve = Add(bend, tiny) double = Div(slope, curve)
        part = Mul(double, half) whole = Cast <to = 1> (at) disparity = Add(whole, part)
        logit = Mul(c_at, steep) confidence = Exp(logit)"""
    constants = {
        'pads': np.array([0, 0, 0, MAX_DISPARITY, 0, 0, 0, 0]),
        'last': np.array([3]),
        'one': np.array([1]),
        'end': np.array([MAX_DISPARITY - 2]),
        'tiny': np.array(1e-9, np.float32),
        'half': np.array(0.5, np.float32),
        'steep': np.array(-200, np.float32),
    }
    for shift in range(MAX_DISPARITY):
        constants[f'from{shift}'] = np.array([MAX_DISPARITY - shift])
        constants[f'to{shift}'] = np.array([MAX_DISPARITY - shift + width])
    shape = (1, 3, height, width)
    whole = {'axis': (1, 2, *shape[1:]), 'channels': (1, 6, *shape[2:])}
    inputs = {'x': whole[stacked]} if stacked else {'left': shape, 'right': shape}
    plane = (1, 1, height, width)
    return save_network(
        path, nodes, inputs, {'disparity': plane, 'confidence': plane}, constants=constants
    )


def save_iterations(folder: Path) -> Path:
    """Write that network, and one that halves the error of a disparity 12 times, as a bundle."""
    save_stereo(folder / 'match.onnx')
    image, plane = (1, 3, *CAMERA.image_wh[::-1]), (1, 1, *CAMERA.image_wh[::-1])
    match = {
        'inputs': [{'name': each, 'shape': list(image)} for each in ('left', 'right')],
        'outputs': [{'name': each, 'shape': list(plane)} for each in ('disparity', 'confidence')],
        'parameters': {'model_path': 'match.onnx'},
    }
    step = {
        'nodes': 'gap = Sub(goal, disp) part = Mul(gap, half) disp_next = Add(disp, part)',
        'inputs': {'disp': plane, 'goal': plane},
        'outputs': {'disp_next': plane},
        'constants': {'half': np.array(0.5, np.float32)},
    }
    path = write_bundle(
        folder,
        {'step': step},
        inputs={'match': ['left', 'right']},
        outputs={'step': ['disp_next']},
        data_flow={'match/disparity': ['step/goal'], 'match/confidence': ['step/disp']},
        loops=[{'models': ['step'], 'steps': 12, 'carry': {'step/disp_next': 'step/disp'}}],
    )
    document = yaml.safe_load(path.read_text())
    document['models'] = {'match': match, **document['models']}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path
