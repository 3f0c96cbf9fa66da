"""RTMPose and other top-down pose networks that classify each keypoint's x and y (SimCC)."""

from typing import Any

from trt_ros.families.family import Family
from trt_ros.families.heatmap_pose import TOP_DOWN_PREPROCESS
from trt_ros.families.layout import Layout, Out, PointLayout

#: Source: Li et al., arXiv:2107.03332. There are s bins per input pixel, 2 for RTMPose.
SIMCC: Family[Any] = Family(
    'simcc',
    'pose',
    TOP_DOWN_PREPROCESS,
    layouts=(PointLayout((Out('B K S*w', 'columns:1'), Out('B K S*h', 'rows:1')), form='bins'),),
    exporter='none',
    networks='RTMPose and others: keypoints of one object',
    export='`tools/deploy.py` of MMDeploy with '
    '`configs/mmpose/pose-detection_simcc_onnxruntime_dynamic.py`',
    near_misses=(
        (
            Layout((Out('B N V', 'box:4 scores:1'), Out('B N K 3', 'keypoints:1'))),
            'Boxes (1, N, 5) with keypoints (1, N, points, 3) are RTMO of MMPose, which is not '
            'decoded: use RTMPose on the regions of a detector.',
        ),
    ),
)
