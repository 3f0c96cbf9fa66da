"""Text of regions and the best keypoints of an image: TensorRT equals ONNX Runtime."""

from demo.scene import draw_scene
from export_features import add_features
import numpy as np
import onnx
import pytest

from support.box_cases import rounded
from support.bundles import write_cascade
from support.descriptions import head as open_as
from support.save_network import save_network
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.letterbox import Letterbox

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize('dtype', ['float32', 'float16', 'bfloat16'])
@pytest.mark.parametrize('count', [5, 6625, 18710])
def test_the_kernel_reads_as_numpy(count, dtype, decode_on_gpu):
    scores = np.random.default_rng(0).normal(0, 3, (1, 40, count)).astype(np.float32)
    scores[0, :2, ::3], scores[0, 3] = np.nan, np.inf
    bits, scores = rounded(scores, dtype)
    box = Letterbox.fit((320, 48), (48, 320), 'stretch')
    head = open_as('pp_ocr_rec', {'out': scores})
    got, _ = decode_on_gpu(head, {'out': bits}, box)
    want = head({'out': scores}, box)
    assert got.symbols.tolist() == want.symbols.tolist()
    np.testing.assert_allclose(got.scores, want.scores, rtol=1e-4)


@pytest.mark.parametrize('batch', ['n', 1, 3])
def test_text_of_a_bundle_and_of_regions(tmp_path, gpu, batch):
    path = write_cascade(tmp_path, batch=batch, max_regions=4, finds='text')
    pixels = draw_scene(np.random.default_rng(3), (640, 480))[0]
    with (
        Pipeline.open(path, backend='tensorrt_rtx', precision='fp32') as ours,
        Pipeline.open(path, backend='onnxruntime') as reference,
    ):
        assert ours.log_lines[-1].endswith('in the same launch')
        wanted = reference(pixels, score=0.3)
        expected = [each.text for each in wanted.region_results[:4]]
        assert [each.text for each in ours(pixels, score=0.3).region_results[:4]] == expected
        boxes = wanted.rotated_boxes()[:3]
        found = ours.regions.infer_regions(pixels, boxes)
        assert [each.text for each in found] == expected[:3]
        assert ours.regions.diagnostics()['CUDA graph fallbacks'] == ''


def test_keypoints_of_an_engine(tmp_path, gpu):
    rng, sizes = np.random.default_rng(0), {'semi': 65, 'desc': 16}
    weights = {f'w_{n}': rng.normal(0, 0.4, (c, 1, 8, 8)).astype('f4') for n, c in sizes.items()}
    cell = {'kernel_shape': [8, 8], 'strides': [8, 8]}
    path = save_network(
        tmp_path / 'raw.onnx',
        [onnx.helper.make_node('Conv', ['image', f'w_{n}'], [n], **cell) for n in sizes],
        {'image': (1, 1, 'h', 'w')},
        {name: (1, size, 'rows', 'columns') for name, size in sizes.items()},
        constants=weights,
    )
    onnx.save(add_features(onnx.load(path), (48, 64), 20, min_match=0.9), tmp_path / 'f.onnx')
    inputs = ('image=image:image', 'previous_descriptors=state:descriptors')
    pixels = rng.integers(0, 256, (48, 64, 3), np.uint8)
    found = []
    for options in ({'backend': 'tensorrt_rtx', 'precision': 'fp32'}, {'backend': 'onnxruntime'}):
        with Pipeline.open(
            tmp_path / 'f.onnx', decoder='tensor', inputs=inputs, **options
        ) as each:
            each(pixels)
            found.append(each(pixels))
    ours, wanted = found
    assert ours['keypoints'].tolist() == wanted['keypoints'].tolist()
    assert ours['matches'].tolist() == wanted['matches'].tolist() == [list(range(20))]
    np.testing.assert_allclose(ours['descriptors'], wanted['descriptors'], atol=1e-3)
