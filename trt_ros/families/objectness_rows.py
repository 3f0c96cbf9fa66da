"""YOLOv5-seg, YOLOv5-face, YOLOv7-pose: boxes with objectness and further values per anchor."""

from __future__ import annotations

from trt_ros.families.family import (
    YOLO_PREPROCESS,
    Family,
    NetworkDescription,
    is_scores,
)
from trt_ros.families.instances import PROTOTYPES, InstanceHead, find_outputs
from trt_ros.families.layout import BoxLayout, Out
from trt_ros.families.pose import PoseHead
from trt_ros.families.yolo import TRIPLES
from trt_ros.families.yolo_rows import (
    ObjectnessRows,
    objectness_mismatch,
    three_anchor_counts,
)
from trt_ros.tensors import TensorSpec

LANDMARKS = 5  # Eyes, nose and corners of the mouth.


def three_anchor_rows(network: NetworkDescription, spec: TensorSpec) -> int:
    """Return the number of values per anchor, -1 where dynamic; 0: not three anchors per cell."""
    if not is_scores(spec) or 'task' in network.metadata:
        return 0
    return spec.shape[2] if spec.shape[1] in three_anchor_counts(network) else 0


def _open_face(network: NetworkDescription) -> PoseHead:
    spec = network.only_output
    if not is_scores(spec) or spec.shape[2] not in (-1, 6 + 2 * LANDMARKS):
        raise objectness_mismatch(str(spec), 2 * LANDMARKS)
    return PoseHead(ObjectnessRows(spec.name, 1, 2 * LANDMARKS, extras_first=True), 2)


def _open_pose(network: NetworkDescription) -> PoseHead:
    spec = network.only_output
    extras = spec.shape[2] - 6 if is_scores(spec) else 0
    if extras <= 0 or extras % 3:
        raise objectness_mismatch(str(spec), '3 * keypoints')
    return PoseHead(ObjectnessRows(spec.name, 1, extras), 3)


def _open_masked(network: NetworkDescription) -> InstanceHead:
    parts = find_outputs(network)
    if parts is None or not is_scores(parts[0]):
        raise objectness_mismatch(str(network), 'masks')
    count, channels = parts[1].shape[1], parts[0].shape[2]
    classes = channels - 5 - count if channels > 0 else None
    if classes is not None and classes < 1:
        raise objectness_mismatch(str(network), count)
    return InstanceHead(ObjectnessRows(parts[0].name, classes, count), parts[1].name)


YOLOV5_SEG = Family(
    'yolov5_seg',
    'segment',
    YOLO_PREPROCESS,
    _open_masked,
    layouts=(
        BoxLayout(
            (Out('B N V', 'box:4 objectness:1 scores:C extras:M'), PROTOTYPES),
            TRIPLES,
            extras='coefficients',
        ),
    ),
    exporter='YOLOv5',
    output_names=('output0',),
)
YOLOV5_FACE = Family(
    'yolov5_face',
    'pose',
    YOLO_PREPROCESS,
    _open_face,
    layouts=(
        BoxLayout(
            (Out('B N V', f'box:4 objectness:1 extras:{2 * LANDMARKS} scores:1'),),
            TRIPLES,
            extras='keypoints',
            known={'K': (LANDMARKS,)},
        ),
    ),
    exporter='YOLOv5',
    output_names=('output', 'output0'),
)
YOLOV7_POSE = Family(
    'yolov7_pose',
    'pose',
    YOLO_PREPROCESS,
    _open_pose,
    layouts=(
        BoxLayout(
            (Out('B N V', 'box:4 objectness:1 scores:1 extras:3*K'),),
            TRIPLES,
            extras='keypoints',
            known={'K': (17, LANDMARKS)},
            needs_known=True,
        ),
    ),
    exporter='YOLOv5',
    output_names=('output', 'output0'),
)
