"""Keypoints and descriptors behind a small network, against NumPy."""

import numpy as np
import onnx
import pytest

from support.save_network import save_network
from trt_ros.errors import ModelError
from trt_ros.exporting.features import add_features, main
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
    """Return keypoints, scores and descriptors by the definition, one pixel after the other."""
    height, width = HW
    cells = image.reshape(height // 8, 8, width // 8, 8).transpose(0, 2, 1, 3)
    planes = {
        name: np.einsum('hwij,cij->hwc', cells, weights[f'w_{name}'][:, 0]) for name in sizes
    }
    powers = np.exp(planes['semi'])
    shares = powers[..., :64] / powers.sum(axis=2, keepdims=True)
    heat = shares.reshape(height // 8, width // 8, 8, 8).transpose(0, 2, 1, 3).reshape(HW)
    trust = 1 / (1 + np.exp(-planes['trust'])) if 'trust' in planes else np.ones((*HW, 1))
    peaks = []
    for y, x in np.ndindex(HW):
        around = heat[max(y - radius, 0) : y + radius + 1, max(x - radius, 0) : x + radius + 1]
        if heat[y, x] >= around.max():
            weight = bilinear(trust, x, y)[0] if 'trust' in planes else 1
            peaks.append((heat[y, x] * weight, (x, y), bilinear(planes['desc'], x, y)))
    peaks.sort(key=lambda peak: -peak[0])
    scores, points, found = zip(*peaks[:COUNT])
    return points, scores, [each / np.linalg.norm(each) for each in found]


def bilinear(planes, x, y):
    (rows, columns), at = planes.shape[:2], ((y + 0.5) / 8 - 0.5, (x + 0.5) / 8 - 0.5)
    v, u = np.clip(at[0], 0, rows - 1), np.clip(at[1], 0, columns - 1)
    top, left = min(int(v), rows - 2), min(int(u), columns - 2)
    upper, lower = (
        planes[row, left] * (left + 1 - u) + planes[row, left + 1] * (u - left)
        for row in (top, top + 1)
    )
    return upper * (top + 1 - v) + lower * (v - top)


def pixels(seed=1):
    return np.random.default_rng(seed).integers(0, 256, (*HW, 1), np.uint8).repeat(3, axis=2)


@pytest.mark.parametrize(('has_reliability', 'radius'), [(False, 2), (True, 4)])
def test_the_best_peaks_have_descriptors_of_their_places(tmp_path, has_reliability, radius):
    path, sizes, weights = save(tmp_path / 'raw.onnx', has_reliability=has_reliability)
    model = add_features(onnx.load(path), HW, COUNT, radius)
    onnx.save(model, tmp_path / 'features.onnx')
    with Pipeline.open(tmp_path / 'features.onnx', **OPTIONS) as opened:
        found = opened(pixels())
    points, scores, descriptors = expected(pixels()[..., 0] / 255, sizes, weights, radius)
    np.testing.assert_allclose(found['scores'][0], scores, rtol=1e-3)
    assert found['keypoints'][0].tolist() == np.array(points).tolist()
    np.testing.assert_allclose(found['descriptors'][0], descriptors, atol=1e-3)


def test_matches_are_mutual_and_of_the_last_image(tmp_path):
    path, *_ = save(tmp_path / 'raw.onnx')
    size = map(str, HW)
    main(
        [
            str(path),
            str(tmp_path / 'm.onnx'),
            '--input-size',
            *size,
            '--count',
            '20',
            '--match',
            '0.9',
        ]
    )
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
