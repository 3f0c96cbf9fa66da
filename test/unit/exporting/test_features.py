"""Keypoints and descriptors behind a small network, against NumPy."""

import cv2
from export_features import add_features, main
import numpy as np
import onnx
import pytest

from support.save_network import save_network
from trt_ros.errors import ModelError
from trt_ros.runtime.pipeline import Pipeline

HW, COUNT, SIZE = (48, 64), 20, 16
OPTIONS = {'backend': 'onnxruntime', 'cpu_threads': 1, 'decoder': 'tensor'}
node = onnx.helper.make_node


def save(path, *, has_reliability=False, logits=65):
    """Write a network of random convolutions of cells of 8 pixels."""
    rng = np.random.default_rng(0)
    sizes = {'semi': logits, 'desc': SIZE, **({'trust': 1} if has_reliability else {})}
    cell = {'kernel_shape': [8, 8], 'strides': [8, 8]}
    weights = {
        f'w_{name}': rng.normal(0, 0.4, (size, 1, 8, 8)).astype(np.float32)
        for name, size in sizes.items()
    }
    raw = [node('Conv', ['image', f'w_{name}'], [f'raw_{name}'], **cell) for name in sizes]
    kinds = {'trust': 'Sigmoid'}
    last = [node(kinds.get(name, 'Identity'), [f'raw_{name}'], [name]) for name in sizes]
    save_network(
        path,
        [*raw, *last],
        {'image': (1, 1, 'h', 'w')},
        {name: (1, size, 'rows', 'columns') for name, size in sizes.items()},
        constants=weights,
    )
    return path, sizes, weights


def expected(image, sizes, weights, radius):
    """Return keypoints, scores and descriptors by the definition."""
    height, width = HW
    cells = image.reshape(height // 8, 8, width // 8, 8).transpose(0, 2, 1, 3)
    planes = {
        name: np.einsum('hwij,cij->hwc', cells, weights[f'w_{name}'][:, 0]) for name in sizes
    }
    powers = np.exp(planes['semi'])
    shares = powers[..., :64] / powers.sum(axis=2, keepdims=True)
    heat = shares.reshape(height // 8, width // 8, 8, 8).transpose(0, 2, 1, 3).reshape(HW)
    y, x = np.nonzero(heat >= cv2.dilate(heat, np.ones([2 * radius + 1] * 2)))
    if 'trust' in planes:
        heat = heat * cv2.resize(1 / (1 + np.exp(-planes['trust'])), HW[::-1])
    order = np.argsort(-heat[y, x])[:COUNT]
    y, x = y[order], x[order]
    found = cv2.resize(planes['desc'], HW[::-1])[y, x]
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return np.stack([x, y], axis=1), heat[y, x], found


def pixels(seed=1):
    return np.random.default_rng(seed).integers(0, 256, (*HW, 1), np.uint8).repeat(3, axis=2)


@pytest.mark.slow
@pytest.mark.parametrize(('has_reliability', 'radius'), [(False, 2), (True, 4)])
def test_the_best_peaks_have_descriptors_of_their_places(tmp_path, has_reliability, radius):
    path, sizes, weights = save(tmp_path / 'raw.onnx', has_reliability=has_reliability)
    model = add_features(onnx.load(path), HW, COUNT, radius)
    onnx.save(model, tmp_path / 'features.onnx')
    with Pipeline.open(tmp_path / 'features.onnx', **OPTIONS) as opened:
        found = opened(pixels())
    points, scores, descriptors = expected(pixels()[..., 0] / 255, sizes, weights, radius)
    np.testing.assert_allclose(found['scores'][0], scores, rtol=1e-3)
    assert found['keypoints'][0].tolist() == points.tolist()
    np.testing.assert_allclose(found['descriptors'][0], descriptors, atol=1e-3)


def test_matches_are_mutual_and_of_the_last_image(tmp_path):
    path, *_ = save(tmp_path / 'raw.onnx')
    options = ['--input-size', '48', '64', '--count', '20', '--match', '0.9']
    main([str(path), str(tmp_path / 'm.onnx'), *options])
    with Pipeline.open(
        tmp_path / 'm.onnx',
        **OPTIONS,
        inputs=('image=image:image', 'previous_descriptors=state:descriptors'),
    ) as opened:
        first, second, third = (opened(pixels(seed)) for seed in (1, 1, 2))
    assert set(first['matches'][0].tolist()) == {-1}
    assert second['matches'][0].tolist() == list(range(COUNT))
    cosines = third['descriptors'][0] @ second['descriptors'][0].T
    nearest, back = cosines.argmax(axis=1), cosines.argmax(axis=0)
    wanted = [
        int(other) if back[other] == index and cosines[index, other] >= 0.9 else -1
        for index, other in enumerate(nearest)
    ]
    assert third['matches'][0].tolist() == wanted


@pytest.mark.parametrize(('logits', 'hw'), [(64, HW), (65, (48, 60))])
def test_other_networks_and_sizes_are_refused(tmp_path, logits, hw):
    path, *_ = save(tmp_path / 'raw.onnx', logits=logits)
    with pytest.raises(ModelError, match='no network of keypoints for images of'):
        add_features(onnx.load(path), hw, COUNT)


#: In place of LightGlue: the nearest descriptors of two images.
GLUE = """
    turned = Transpose <perm = [0, 2, 1]> (descriptors1)
    cosines = MatMul (descriptors0, turned)
    nearest = ArgMax <axis = 2, keepdims = 0> (cosines)
    back = ArgMax <axis = 1, keepdims = 0> (cosines)
    returned = GatherElements <axis = 1> (back, nearest)
    is_mutual = Equal (returned, order)
    best = ReduceMax <axes = [2], keepdims = 0> (cosines)
    is_near = Greater (best, least)
    is_match = And (is_mutual, is_near)
    matches = Where (is_match, nearest, none)
"""

BUNDLE = """
models:
  features:
    parameters: {model_path: features.onnx}
    inputs: [{name: image, shape: [1, 1, 48, 64]}]
    outputs:
    - {name: keypoints, shape: [1, 20, 2]}
    - {name: scores, shape: [1, 20]}
    - {name: descriptors, shape: [1, 20, 16]}
  glue:
    parameters: {model_path: glue.onnx}
    inputs:
    - {name: descriptors0, shape: [1, 20, 16]}
    - {name: descriptors1, shape: [1, 20, 16]}
    outputs: [{name: matches, shape: [1, 20], dtype: int64}]
pipeline:
  inputs: {features: [image]}
  outputs: {features: [keypoints, scores], glue: [matches]}
  data_flow: {features/descriptors: [glue/descriptors0]}
  feedback_flow: {features/descriptors: [glue/descriptors1]}
"""


def test_a_network_like_lightglue_matches_with_the_last_image(tmp_path):
    onnx.save(
        add_features(onnx.load(save(tmp_path / 'raw.onnx')[0]), HW, COUNT),
        tmp_path / 'features.onnx',
    )
    save_network(
        tmp_path / 'glue.onnx',
        GLUE,
        dict.fromkeys(('descriptors0', 'descriptors1'), (1, COUNT, SIZE)),
        {'matches': [onnx.TensorProto.INT64, (1, COUNT)]},
        constants={
            'least': np.float32([0.9]),
            'order': np.arange(COUNT)[None],
            'none': np.array([-1]),
        },
    )
    (tmp_path / 'bundle.yaml').write_text(BUNDLE)
    whole = np.random.default_rng(3).integers(0, 256, (48, 80, 1), np.uint8).repeat(3, axis=2)
    with Pipeline.open(
        tmp_path / 'bundle.yaml', **OPTIONS, inputs=('image=image:image',)
    ) as opened:
        runs = [opened(np.ascontiguousarray(whole[:, at : at + 64])) for at in (0, 0, 8)]
    points = [each['keypoints'][0] for each in runs]
    assert (runs[0]['matches'] == -1).all()
    for now, shift in ((1, 0), (2, 8)):
        matches = runs[now]['matches'][0]
        ours = np.flatnonzero(matches >= 0)
        assert len(ours) > COUNT / 2
        assert (points[now - 1][matches[ours]] - points[now][ours] == [shift, 0]).all()
