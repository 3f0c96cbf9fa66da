"""PFLD and similar networks: landmarks of the one face that the input shows."""

from typing import Any

from trt_ros.families.family import STRETCH_PREPROCESS, Family
from trt_ros.families.layout import Out, PointLayout


def _layout(*names: str, by_name: bool = False) -> PointLayout:
    return PointLayout(
        (Out('B V', 'points:2*K', names),),
        values=2,
        is_normalized=True,
        region_scale=1.1,
        ignores_others=True,
        by_name=by_name,
    )


#: Landmarks are 0 to 1 of a square of 1.1 times the longer side of the face. Source: PFLD (Guo et
#: al., arXiv:1902.10859), as trained by `PFLD-pytorch`.
PFLD: Family[Any] = Family(
    'pfld',
    'pose',
    {**STRETCH_PREPROCESS, 'channel_order': 'bgr'},
    layouts=(_layout('(?i).*(landm|keypoint|kpt|point|joint).*'), _layout(by_name=True)),
    exporter='none',
    networks='PFLD and others: landmarks of one face from 0 to 1, such as 98, 68 or 106',
    export='`pytorch2onnx.py` of PFLD-pytorch; `outputs` names that of the landmarks',
)
