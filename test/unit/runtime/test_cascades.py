"""A detector and a classifier of its objects as one model, on the CPU."""

from functools import partial

from demo.scene import draw_scene
import numpy as np
import pytest
import yaml

from support.bundles import write_cascade
from support.save_network import save_network
from support.shape_networks import save_shapes
from trt_ros.demo import MODEL
from trt_ros.errors import ModelError, ParameterError, TensorMismatchError
from trt_ros.families.registry import CLASSIFIERS
from trt_ros.runtime.pipeline import Pipeline

pytestmark = pytest.mark.slow

open_cpu = partial(Pipeline.open, backend='onnxruntime', cpu_threads=1)
PLAIN = {'labels': ('red', 'green', 'blue'), 'mean': (0.0,) * 3, 'std': (1.0,) * 3}


def scene(seed):
    return draw_scene(np.random.default_rng(seed), (640, 480))[0]


@pytest.mark.parametrize(
    ('batch', 'max_regions', 'score'),
    [('n', 16, 0.3), ('n', 2, 0.3), ('n', 16, 1.0), (1, 16, 0.3), (3, 2, 0.3)],
)
def test_results_are_those_of_two_pipelines(tmp_path, batch, max_regions, score):
    path = write_cascade(tmp_path, batch=batch, max_regions=max_regions, region_scale=1.5)
    with (
        open_cpu(path) as both,
        open_cpu(MODEL) as detector,
        open_cpu(
            tmp_path / 'color.onnx',
            families=CLASSIFIERS,
            regions=True,
            region_scale=1.5,
            batch=max_regions,
            **PLAIN,
        ) as colors,
    ):
        images = [scene(seed) for seed in (3, 1)]
        found = [both(images[0], score=score), *both(images, score=score)]
        for image, ours in zip([images[0], *images], found):
            wanted = detector(image, score=score)
            assert ours.xyxy.tolist() == wanted.xyxy.tolist()
            regions = colors.infer_regions(image, wanted[:max_regions])
            assert len(ours.region_results) == len(wanted)
            assert list(ours.region_results[max_regions:]) == [None] * len(wanted[max_regions:])
            for each, expected in zip(ours, regions):
                np.testing.assert_array_equal(each.region.scores, expected.scores)
                assert each.region.names == expected.names
        assert len(found[0]) == (0 if score == 1 else 5)
        last = 'regions: up to 16 objects per image, in runs of their own'
        assert both.log_lines[-1] == last.replace('16', str(max_regions))


def test_objects_carry_the_result_of_their_region_and_the_first_network_detects_them(tmp_path):
    with open_cpu(write_cascade(tmp_path)) as pipeline:
        found = pipeline(scene(1), score=0.3)
    second = found[[1]]
    assert second.region_results == [found.region_results[1]]
    entry = second.as_json()['detections'][0]
    assert entry['region'] == found[1].region.as_json()
    assert entry['region']['classes'][0]['label'] in ('red', 'green', 'blue')
    path = write_cascade(tmp_path, save_shapes(tmp_path / 'kinds.onnx', 'classify'))
    with pytest.raises(TensorMismatchError, match='does not detect objects'):
        open_cpu(path, families=CLASSIFIERS)


@pytest.mark.parametrize(
    ('options', 'error', 'message'),
    [
        ({'backend': 'onnxruntime'}, ModelError, 'does not take: backend'),
        ({'max_region': 3}, ParameterError, "no option 'max_region'"),
        ({'max_regions': 0}, ParameterError, 'max_regions is 0'),
        ({'decoder': 'yolov8'}, TensorMismatchError, 'not those of yolov8'),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        open_cpu(write_cascade(tmp_path, **options))


def test_objects_that_are_upside_down_are_turned_for_the_last_network(tmp_path):
    path = write_cascade(tmp_path, finds='landmarks')
    save_network(
        tmp_path / 'sides.onnx',
        'pooled = GlobalAveragePool(images) flat = Flatten(pooled) '
        'logits = MatMul(flat, w) classes = Softmax <axis = 1> (logits)',
        {'images': ('n', 3, 32, 24)},
        {'classes': ('n', 3)},
        constants={'w': 1000 * np.eye(3, dtype=np.float32)},
    )
    with open_cpu(path) as upright:
        expected = upright(scene(3), score=0.3)
    document = yaml.safe_load(path.read_text())
    options = {'mean': [0.0] * 3, 'std': [1.0] * 3, 'labels': ['red', 'green', 'blue']}
    sides = {'parameters': {'model_path': 'sides.onnx'}, 'options': options}
    detector, color = document['models'].items()
    document['models'] = dict([detector, ('sides', sides), color])
    document['pipeline']['turns'] = {'detector': 'sides'}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    with open_cpu(path) as pipeline:
        found = pipeline(scene(3), score=0.3)
        sides = pipeline.turns.infer_regions(scene(3), found)
    is_green = [each.scores[1] > 0.9 for each in sides]
    assert 0 < sum(is_green) < len(found)
    for ours, plain, is_turned in zip(found, expected, is_green):
        corners = plain.region.keypoints[0, :, :2]
        np.testing.assert_allclose(
            ours.region.keypoints[0, :, :2], corners[::-1] if is_turned else corners, atol=1e-3
        )
