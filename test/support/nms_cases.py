"""Candidates of YOLOv8 for non-maximum suppression, with the NumPy head that decides it."""

import numpy as np

from support.descriptions import head as open_as
from trt_ros.vision.letterbox import Letterbox

BOX = Letterbox.fit((1280, 1280), (640, 640), 'stretch')
HEAD = open_as('yolov8', 'head (1, ?, ?)')


def columns(centers, sizes, scores) -> dict[str, np.ndarray]:
    """YOLOv8's output (1, 4 + C, N) of N centers and sizes (N, 2), and scores (N, C)."""
    return {'head': np.hstack([centers, sizes, scores]).T.astype(np.float32, order='C')[None]}


def piled(
    count, objects, *, classes=1, seed=0, scores=None, in_bands=False
) -> dict[str, np.ndarray]:
    """Candidates that all lie on a few objects; in bands, each object's scores are consecutive."""
    rng = np.random.default_rng(seed)
    across = int(np.ceil(np.sqrt(objects)))
    places = np.stack(np.divmod(np.arange(objects), across), axis=1) * (600 / across) + 20
    owner = rng.integers(0, objects, count)
    scores = rng.uniform(0.3, 1, count) if scores is None else scores
    if in_bands:
        owner, scores = np.sort(owner), np.sort(scores)[::-1]
    all_scores = np.zeros((count, classes))
    all_scores[np.arange(count), rng.integers(0, classes, count)] = scores
    size = 400 / across
    return columns(
        places[owner] + rng.normal(0, 0.02 * size, (count, 2)),
        size * rng.uniform(0.9, 1.1, (count, 2)),
        all_scores,
    )


def assert_equal(decode, outputs, asked, head=HEAD, letterbox=BOX):
    """Compare a decoder with kernels with the NumPy head; return its result and its counts."""
    got, counts = decode(head, outputs, letterbox, asked)
    want = head(outputs, letterbox, asked)
    assert len(got) == len(want)
    assert got.scores.tolist() == want.scores.tolist()
    assert got.labels.tolist() == want.labels.tolist()
    np.testing.assert_allclose(got.xyxy, want.xyxy, atol=1e-3)
    return got, counts
