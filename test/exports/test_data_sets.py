"""Data sets of recordings in COCO format, by the importers of other tools."""

from types import SimpleNamespace

import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.labelling.coco import CocoLabels
from trt_ros.labelling.results import ImageHeader
from trt_ros.results.boxes import Detections
from trt_ros.results.masks import Instances
from trt_ros.vision.frame import Frame


@pytest.fixture
def data_set(tmp_path):
    """Write two pictures with a mask each; return the masks, (2, H, W)."""
    head = open_as('yolov8', 'output0 (1, 84, 8400)')
    decoder = SimpleNamespace(task='segment', name='yolov8', head=head, class_count=2)
    pipeline = SimpleNamespace(decoder=decoder, class_names=('a', 'b'))
    pixels = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    labels = CocoLabels(tmp_path / 'out.json', pipeline, {}, tmp_path / 'out')
    masks = np.zeros((2, 64, 96), bool)
    masks[:, 15:27, 15:35], masks[1, 18:20, 20:22] = True, False
    for index, mask in enumerate(masks):
        box = Detections(np.float32([[10, 12, 40, 32]]), np.float32([0.75]), np.int32([index]))
        box = box.with_ids(np.int64([7 + index]))
        found = Instances(box, [mask[12:32, 10:40]], np.int32([[10, 12]]), (96, 64))
        header = ImageHeader((index, 0), 'camera', (96, 64))
        labels.write('/front', header, Frame.from_pixels(pixels), found)
    labels.close()
    return masks


def test_supervision_loads_masks(data_set, tmp_path):
    supervision = pytest.importorskip('supervision', reason='pip install supervision')
    folder, labels = str(tmp_path / 'out'), str(tmp_path / 'out.json')
    loaded = supervision.DetectionDataset.from_coco(folder, labels)
    for index, (_, _, found) in enumerate(loaded):
        assert (found.mask == data_set[index]).all()
        assert (found.xyxy.tolist(), found.class_id.tolist()) == ([[10, 12, 40, 32]], [index])
    yolo = [str(tmp_path / name) for name in ('images', 'labels', 'data.yaml')]
    loaded.as_yolo(*yolo)
    again = supervision.DetectionDataset.from_yolo(*yolo, is_obb=False)
    assert {int(found.class_id[0]) for _, _, found in again} == {0, 1}


def test_fiftyone_imports_masks_and_tracks(data_set, tmp_path):
    coco = pytest.importorskip('fiftyone.utils.coco', reason='pip install fiftyone pycocotools')
    importer = coco.COCODetectionDatasetImporter(
        data_path=str(tmp_path / 'out'),
        labels_path=str(tmp_path / 'out.json'),
        label_types=['detections', 'segmentations'],
        extra_attrs=True,
    )
    with importer:
        for index, (path, _, labels) in enumerate(importer):
            (found,) = labels['segmentations'].detections
            assert path.endswith(f'out/front/{index}.000000000.png')
            assert (found.label, found.confidence) == ('ab'[index], 0.75)
            assert found['track_id'] == 7 + index
            assert (found.mask == data_set[index, 12:32, 10:40]).all()
