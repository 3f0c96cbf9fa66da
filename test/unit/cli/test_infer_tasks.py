"""`trt-ros infer` with networks of every task, and in COCO format."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from support.frames import write_video
from support.save_network import save_text
from trt_ros.cli import main

# Of pycocotools 2.0.11 with NumPy 2.
pytestmark = pytest.mark.filterwarnings('ignore:__array__ implementation:DeprecationWarning')

# Center, width and height in the network's 64 × 64 pixels; images have 128.
BOX = 32, 32, 40, 20
XYXY = [24.0, 44.0, 104.0, 84.0]


@pytest.fixture
def network(tmp_path):
    """Write a network from a graph, or one that answers with constants for whatever it sees."""

    def write(graph='', metadata=None, **constants):
        outputs = ', '.join(
            f'float[{", ".join(map(str, value.shape))}] {name}'
            for name, value in constants.items()
        )
        graph = graph or (
            f'(float[1, 3, 64, 64] images) => ({outputs}) '
            '{ mean = ReduceMean<keepdims = 0>(images) zero = Sub(mean, mean) '
            + ' '.join(f'{name} = Add({name}_value, zero)' for name in constants)
            + ' }'
        )
        values = {f'{name}_value': each.astype(np.float32) for name, each in constants.items()}
        path = tmp_path / 'network.onnx'
        return save_text(path, graph, constants=values, metadata=metadata)

    return write


@pytest.fixture
def infer(tmp_path, capsys):
    """Run the verb on pictures whose left half is red; return the entries and stderr."""

    def run(model, *args, names=('a.png',), code=0):
        pixels = np.zeros((128, 128, 3), np.uint8)
        pixels[:, :64] = 0, 0, 255
        for name in names:
            cv2.imwrite(str(tmp_path / name), pixels)
        files = [str(tmp_path / name) for name in names]
        output = tmp_path / 'out'
        found = main(
            ['infer', '--model', str(model), *files, '--output', str(output), *map(str, args)]
        )
        said = capsys.readouterr().err
        assert found == code, said
        written = output / 'results.json'
        return json.loads(written.read_text()) if written.exists() else [], said

    return run


def rows(*extra):
    """Make the output of a YOLO head, 84 cells, with one box of score 0.9."""
    head = np.zeros((1, 5 + len(extra), 84))
    head[0, :, 0] = *BOX, 0.9, *extra
    return head


def picture(tmp_path, name='a.png'):
    return cv2.imread(str(tmp_path / 'out' / name), cv2.IMREAD_UNCHANGED)


@pytest.fixture
def pose(network):
    return network(
        metadata={'task': 'pose', 'kpt_shape': '[2, 3]', 'names': "{0: 'person'}"},
        output0=rows(32, 24, 0.75, 40, 40, 0.5),
    )


@pytest.fixture
def instances(network):
    masks = np.full((1, 32, 16, 16), -9.0)
    masks[0, 0, :, :8] = 9
    return network(
        metadata={'task': 'segment', 'names': "{0: 'person'}"},
        output0=rows(1, *[0] * 31),
        output1=masks,
    )


@pytest.fixture
def semantic(network):
    return network(
        '(float[1, 3, 64, 64] images) => (float[1, 3, 64, 64] mask) { mask = Identity(images) }'
    )


@pytest.mark.parametrize(
    ('name', 'shape', 'decoder'),
    [
        ('output0', (1, 6, 84), 'yolov8'),
        ('scores', (1, 1000), 'classifier'),
        ('logits', (1, 21, 64, 64), 'semantic'),
        ('depth', (1, 1, 64, 64), 'depth'),
        ('vector', (1, 9), 'embedding'),
    ],
)
def test_results_of_nan_are_reported(infer, network, name, shape, decoder):
    values = np.zeros(shape)
    model = network(**{name: values})
    (entry,), said = infer(model, '--decoder', decoder)
    assert 'non_finite' not in entry and 'NaN' not in said
    limits = ('--score-threshold', 0.5, '--max-detections', 3)
    _, said = infer(model, '--decoder', decoder, *limits)
    ignored = f'Ignored by the decoder {decoder}: score_threshold, max_detections.'
    assert (ignored in said) == (decoder != 'yolov8')
    values[0, -1] = np.nan
    (entry,), said = infer(network(**{name: values}), '--decoder', decoder, code=1)
    assert entry['non_finite'] is True
    assert 'results of NaN or infinite outputs: 1; see' in said


def test_poses_have_their_keypoints(infer, pose, tmp_path):
    (entry,), said = infer(pose)
    (found,) = entry['detections']
    assert (found['label'], found['score'], found['xyxy']) == ('person', 0.9, XYXY)
    assert found['keypoints'] == [[64.0, 48.0, 0.75], [80.0, 80.0, 0.5]]
    assert 'files: 1, detections: 1' in said
    assert picture(tmp_path)[80, 80].any()  # Black before.


def test_rotated_boxes_are_drawn_and_written_with_their_angle(infer, network, tmp_path):
    model = network(metadata={'task': 'obb', 'names': "{0: 'ship'}"}, output0=rows(np.pi / 6))
    (entry,), _ = infer(model)
    (found,) = entry['detections']
    assert (found['label'], found['cxcywh'], found['theta']) == ('ship', [64, 64, 80, 40], 0.5236)
    # Around it: half of 80 cos 30 + 40 sin 30 to the sides, of 80 sin 30 + 40 cos 30 up and down.
    assert found['xyxy'] == pytest.approx([19.36, 26.68, 108.64, 101.32], abs=0.02)
    drawn = picture(tmp_path)
    along, across = 40 * np.array([np.cos(0.5236), np.sin(0.5236)]), np.array([10, -17.32])
    column, row = np.rint(64 + along + across).astype(int)  # A corner of the rotated box
    assert drawn[row - 1 : row + 2, column - 1 : column + 2].any()
    assert not drawn[25:28, 107:110].any()  # A corner of the upright one


def test_instances_have_their_masks(infer, instances, tmp_path):
    mask_utils = pytest.importorskip('pycocotools.mask')
    (entry,), _ = infer(instances)
    (found,) = entry['detections']
    assert found['xyxy'] == XYXY
    mask = mask_utils.decode(found['mask'])
    rows, columns = np.nonzero(mask)
    assert (rows.min(), rows.max() + 1, columns.min()) == (44, 84, 24)
    assert columns.max() + 1 == pytest.approx(64, abs=5)
    assert picture(tmp_path)[64, 40].tolist() != [0, 0, 255]


def test_semantic_masks_are_files_of_class_indices(infer, semantic, tmp_path):
    (entry,), said = infer(semantic, '--labels', 'red,green,blue', '--resize', 'stretch')
    assert entry['mask']['file'] == 'a_mask.png'
    assert entry['mask']['classes'][0]['label'] == 'red'
    mask = picture(tmp_path, 'a_mask.png')
    assert (mask.shape, mask.dtype) == ((128, 128), np.uint8)
    assert (mask[:, :60] == 0).all()
    fraction = sum(each['fraction'] for each in entry['mask']['classes'])
    assert fraction == pytest.approx(1, abs=1e-4)
    assert 'files: 1; see' in said


def test_several_masks_are_files_of_their_outputs(infer, network, tmp_path):
    model = network(
        '(float[1, 3, 64, 64] images) => (float[1, 3, 64, 64] road, float[1, 3, 64, 64] lane) '
        '{ road = Identity(images) lane = Neg(images) }'
    )
    (entry,), _ = infer(model, '--outputs', 'road,lane')
    assert [each['file'] for each in entry['masks'].values()] == [
        'a_road_mask.png',
        'a_lane_mask.png',
    ]
    assert picture(tmp_path, 'a_road_mask.png')[64, 10] == 0
    assert picture(tmp_path, 'a_lane_mask.png')[64, 10] != 0


def test_classes_of_a_picture_are_sorted_by_score(infer, network):
    model = network(
        '(float[1, 3, 64, 64] images) => (float[1, 3] probabilities) '
        '{ mean = ReduceMean<axes = [2, 3], keepdims = 0>(images) '
        'probabilities = Softmax(mean) }'
    )
    labels = ('--labels', 'red,green,blue', '--mean', '0,0,0', '--std', '1,1,1')
    (entry,), _ = infer(model, *labels)
    assert [each['label'] for each in entry['classes']] == ['red', 'green', 'blue']
    assert sum(each['score'] for each in entry['classes']) == pytest.approx(1, abs=1e-3)


def test_depth_is_a_file_of_floats(infer, network, tmp_path):
    values = np.linspace(1, 5, 64)[:, None] * np.ones((1, 64, 64))
    (entry,), _ = infer(network(depth=values))
    assert entry['depth'] == {'min': 1.0, 'median': 3.0, 'max': 5.0, 'file': 'a_depth.tiff'}
    found = picture(tmp_path, 'a_depth.tiff')
    assert (found.dtype, found.shape) == (np.float32, (128, 128))
    assert found[0, 0] == 1 and found[127, 127] == 5
    colors = picture(tmp_path)
    assert colors[0, 0].tolist() != colors[127, 0].tolist()
    (entry,), _ = infer(network(depth=values * 1.23456e-5))
    assert (entry['depth']['min'], entry['depth']['max']) == (1.2346e-05, 6.1728e-05)


@pytest.mark.parametrize(
    'flags',
    [['--classes', 'red'], ['--class-score-thresholds', '0:0.5'], ['--class-agnostic-nms']],
)
def test_limits_of_objects_are_refused_for_other_results(infer, semantic, flags):
    _, said = infer(semantic, '--labels', 'red,green,blue', *flags, code=1)
    assert 'are for objects, but decoder semantic finds none' in said


def test_masks_of_videos_are_numbered(infer, semantic, tmp_path):
    clip = tmp_path / 'clip.avi'
    write_video(clip, [np.zeros((64, 64, 3), np.uint8)] * 2)
    entries, _ = infer(semantic, clip, names=())
    assert [each['mask']['file'] for each in entries] == [
        'clip_000000_mask.png',
        'clip_000001_mask.png',
    ]
    assert picture(tmp_path, 'clip_000001_mask.png').shape == (64, 64)


@pytest.mark.parametrize('task', ['pose', 'instances', 'semantic'])
def test_results_in_coco_format_are_read_by_pycocotools(infer, task, tmp_path, request):
    pytest.importorskip('pycocotools')
    from pycocotools.coco import COCO

    path = tmp_path / 'coco.json'
    entries, _ = infer(request.getfixturevalue(task), '--coco', path, names=('a.png', 'b.png'))
    assert [each['image_id'] for each in entries] == [1, 2]
    truth = COCO()
    truth.dataset = {
        'info': {},
        'images': [{'id': number, 'width': 128, 'height': 128} for number in (1, 2)],
        'categories': [{'id': number, 'name': str(number)} for number in (1, 2, 3)],
        'annotations': [],
    }
    truth.createIndex()
    found = truth.loadRes(str(path))
    assert {each['image_id'] for each in found.anns.values()} == {1, 2}
    first = found.anns[1]
    assert first['category_id'] == 1
    if task == 'pose':
        assert first['keypoints'] == [64.0, 48.0, 0.75, 80.0, 80.0, 0.5]
    else:
        mask = found.annToMask(first)
        assert mask[64, 40] == 1 and mask[64, 80] == 0
    assert first['bbox'] == pytest.approx([24, 44, 80, 40]) or task == 'semantic'


def test_image_ids_are_the_numbers_that_all_files_are_named(infer, pose, tmp_path):
    path = tmp_path / 'coco.json'
    infer(pose, '--coco', path, names=('000000397133.png', '000000000007.png'))
    assert [each['image_id'] for each in json.loads(path.read_text())] == [397133, 7]


def test_ids_are_those_of_the_annotations(infer, pose, tmp_path):
    truth = tmp_path / 'truth.json'
    images, categories = [{'id': 12, 'file_name': 'val/a.png'}], [{'id': 5, 'name': 'person'}]
    truth.write_text(json.dumps({'images': images, 'categories': categories}))
    path = tmp_path / 'coco.json'
    infer(pose, '--coco', path, '--annotations', truth)
    (entry,) = json.loads(path.read_text())
    assert (entry['image_id'], entry['category_id']) == (12, 5)
    _, said = infer(pose, '--coco', path, '--annotations', truth, names=('a.png', 'b.png'), code=1)
    assert 'The annotations have no image b.png.\nCause: 1 of 2 files' in said
    _, said = infer(pose, '--coco', path, '--annotations', truth, names=('a.png', 'a.png'), code=1)
    assert 'There are 2 images of the name a.png.' in said


@pytest.mark.parametrize('decoder', ['depth', 'tensor', 'embedding'])
def test_results_without_a_format_of_coco_are_refused(infer, network, tmp_path, decoder):
    flags = ('--decoder', decoder, '--coco', tmp_path / 'coco.json')
    head = np.ones((1, 64) if decoder == 'embedding' else (1, 64, 64))
    _, said = infer(network(depth=head), *flags, code=1)
    assert f'--coco has no format for the results of decoder {decoder}.' in said
    assert not (tmp_path / 'coco.json').exists()


@pytest.mark.parametrize(
    ('flag', 'said'),
    [
        ('--coco', 'none does not exist.'),
        ('--annotations', '--annotations has no effect without --coco.'),
    ],
)
def test_a_coco_file_without_folder_and_annotations_without_coco_are_refused(
    infer, pose, tmp_path, flag, said
):
    assert said in infer(pose, flag, tmp_path / 'none/file.json', code=1)[1]


@pytest.mark.slow
def test_classes_are_chosen(infer, network):
    head = rows(0)
    head[0, :, 1] = 33, 32, 40, 20, 0, 0.8
    model = network(metadata={'task': 'detect', 'names': "{0: 'cat', 1: 'dog'}"}, output0=head)

    def labels(*flags):
        ((entry,), _) = infer(model, *flags)
        return [each['label'] for each in entry['detections']]

    assert labels() == ['cat', 'dog']
    assert labels('--classes', 'dog') == labels('--classes', '1') == ['dog']
    assert labels('--class-agnostic-nms') == ['cat']
    assert labels('--class-score-thresholds', 'cat:0.95,dog:0.1') == ['dog']
    _, said = infer(model, '--classes', 'cat,dag', code=1)
    assert "unknown class 'dag'" in said and "Did you mean 'dog'" in said


@pytest.mark.parametrize('decoder', ['embedding', 'tensor'])
def test_vectors_and_undecoded_outputs_become_npz(infer, network, tmp_path, decoder):
    values = np.arange(6, dtype=np.float32)[None]
    [entry], _ = infer(network(file=values), '--decoder', decoder)
    assert entry['tensors'] == {'file': {'shape': [1, 6], 'dtype': 'float32'}}
    assert Path(entry['file']).suffix == '.png'
    with np.load(tmp_path / 'out' / entry['tensors_file']) as arrays:
        assert list(arrays) == ['file']
        np.testing.assert_array_equal(arrays['file'], values)


def test_a_vector_without_evidence_is_a_question_with_the_readings(infer, network):
    path = network(out=np.zeros((1, 6)))
    _, text = infer(path, code=1)
    assert (
        'classifier, in the node `classifier`: 6 class scores; trial run: 6 values, 0 to 0' in text
    )
    assert 'embedding, in the node `tensor`: vector; trial run: 6 values, 0 to 0' in text
    assert 'tensors' not in infer(path, '--decoder', 'classifier')[0][0]
    assert infer(path, '--no-strict')[1].count('no evidence but the shape') == 1
