"""ViTPose and other top-down pose networks with one heatmap per keypoint."""

from collections.abc import Mapping
from typing import Any, Literal

from trt_ros.families.family import IMAGENET_PREPROCESS, Family, NetworkDescription, has_sizes
from trt_ros.families.layout import Out, PointLayout

#: Preprocessing of top-down pose networks by MMPose and transformers; regions are padded alike.
TOP_DOWN_PREPROCESS: Mapping[str, object] = {
    **IMAGENET_PREPROCESS,
    'resize': 'letterbox',
    'pad_value': 0,
}
#: Numbers of keypoints by which heatmaps are recognized: COCO and COCO-WholeBody.
KEYPOINT_COUNTS = (17, 133)


def _is_of_one_object(network: NetworkDescription) -> Literal[False] | None:
    return False if network.class_count not in (None, 0, 1) else None  # It may be named.


HEATMAP_POSE: Family[Any] = Family(
    'heatmap_pose',
    'pose',
    TOP_DOWN_PREPROCESS,
    layouts=(
        PointLayout(
            (Out('B K h/4 w/4', 'heatmaps:K', ('(?i).*(heatmap|keypoint).*',)),),
            form='heatmaps',
            known={},
            evidence=(_is_of_one_object,),
        ),
        PointLayout(
            (Out('B K h/4 w/4', 'heatmaps:K'),),
            form='heatmaps',
            known={'K': KEYPOINT_COUNTS},
            needs_known=True,
            evidence=(_is_of_one_object, has_sizes),
        ),
        PointLayout((Out('B K H W', 'heatmaps:K'),), form='heatmaps', by_name=True),
    ),
    exporter='none',
    remedy='Export the heatmaps as the only output, or choose another decoder.',
    networks='ViTPose, HRNet and others: keypoints of one object',
)
