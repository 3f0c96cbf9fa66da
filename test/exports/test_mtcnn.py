"""MTCNN: the faces that facenet-pytorch finds with the networks in its wheel."""

from pathlib import Path
import subprocess
import sys

import cv2
import numpy as np
import pytest

from trt_ros.runtime.pipeline import Pipeline


def test_faces_are_those_of_facenet_pytorch(tmp_path):
    for name in ('onnx', 'onnxruntime', 'torchvision', 'PIL'):
        pytest.importorskip(name)
    facenet = pytest.importorskip(
        'facenet_pytorch.models.mtcnn', reason='pip install --no-deps facenet-pytorch==2.6.0'
    )
    skimage = pytest.importorskip('skimage', reason='a picture: pip install scikit-image')
    pixels = cv2.imread(str(Path(skimage.__file__).parent / 'data' / 'astronaut.png'))
    half = cv2.resize(pixels, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    pixels = np.hstack([pixels, np.vstack([half, cv2.GaussianBlur(half[:, ::-1], (5, 5), 2)])])
    command = [sys.executable, 'tools/export_mtcnn.py', tmp_path / 'mtcnn.onnx', '--size']
    subprocess.run([*command, *map(str, pixels.shape[:2])], check=True)
    boxes, scores, points = facenet.MTCNN(keep_all=True).detect(pixels[..., ::-1], landmarks=True)
    with Pipeline.open(tmp_path / 'mtcnn.onnx', backend='onnxruntime') as pipeline:
        found = pipeline(pixels, score=0.5)
    assert len(found) == len(boxes) == 3
    order = np.argsort(-scores)
    np.testing.assert_allclose(found.detections.xyxy, np.float32(boxes[order]), atol=0.01)
    np.testing.assert_allclose(found.detections.scores, np.float32(scores[order]), atol=1e-4)
    np.testing.assert_allclose(found.keypoints[..., :2], np.float32(points[order]), atol=0.01)
