"""RF-DETR for instance segmentation: a fixed number of queries with boxes and masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.detr import RFDETR, DetrHead, open_rfdetr, rf_outputs
from trt_ros.families.family import (
    Family,
    Head,
    NetworkDescription,
    image_output,
    is_float,
)
from trt_ros.families.layout import Out
from trt_ros.results.masks import Instances
from trt_ros.tensors import TensorSpec
from trt_ros.vision.float16 import as_float32
from trt_ros.vision.grid import covers, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.masks import Box, cells_of, threshold_masks, window_of
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class DetrMaskHead(Head[Instances]):
    """
    A decoder of the outputs of a DETR and of (1, Q, h, w) logits of the mask of each query.

    Logits are resized to the image (bilinear), and those above 0 are in the mask. It is not
    limited to the box. Source: `PostProcess` of the package rfdetr.
    """

    boxes: DetrHead
    masks_name: str

    @property
    def class_count(self) -> int | None:
        """Number of classes; None: unknown."""
        return self.boxes.class_count

    @property
    def counts_background(self) -> bool:
        """Whether class 0 is the background where it is named first: as of the boxes."""
        return self.boxes.counts_background

    @property
    def finds_instances(self) -> bool:
        """The result is `Instances`."""
        return True

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Instances:
        """
        Decode the outputs into boxes with masks; see `Head`.

        :raises TensorMismatchError: when an output is missing or of another shape.
        """
        logits = image_output(outputs, self.masks_name, 3)
        queries, found = self.boxes.choose(outputs, letterbox, thresholds)
        if len(logits) != len(outputs[self.boxes.logits_name][0]):
            raise TensorMismatchError(
                f'The output {self.masks_name!r} has {len(logits)} masks for '
                f'{len(outputs[self.boxes.logits_name][0])} queries.'
            )
        masks, origins = _whole_masks(as_float32(logits[queries]), letterbox)
        return Instances(found, masks, origins, letterbox.image_wh)


def _whole_masks(
    planes: np.ndarray, letterbox: Letterbox
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """
    Return the masks of planes where they are above 0, and the pixel of their upper-left corners.

    :param planes: (K, h, w) logits; those that are not finite are in no mask.
    """
    rows, cols = taps(letterbox, (planes.shape[1], planes.shape[2]))
    found = {
        index: window
        for index, plane in enumerate(planes)
        if (window := window_of(plane > 0, rows, cols)) is not None
    }
    boxes: list[Box] = list(found.values())
    parts = [planes[index][cells_of(rows, cols, box)] for index, box in found.items()]
    with np.errstate(invalid='ignore', over='ignore'):
        masks = dict(zip(found, threshold_masks(parts, 0.0, rows, cols, boxes)))
    origins = np.zeros((len(planes), 2), np.int32)
    for index, box in found.items():
        origins[index] = box[:2]
    empty = np.zeros((0, 0), bool)
    return tuple(masks.get(index, empty) for index in range(len(planes))), origins


def find_masks(network: NetworkDescription) -> TensorSpec | None:
    """Find the masks of an RF-DETR by their name; None: it is no such network."""
    queries = rf_outputs(network)
    named = {spec.name: spec for spec in network.outputs}
    if queries is None or set(named) != {'dets', 'labels', 'masks'}:
        return None
    masks = named['masks']
    if len(masks.shape) != 4 or masks.shape[0] not in (1, -1) or not is_float(masks):
        return None
    _, count, rows, columns = masks.shape
    fits = count in (-1, queries.logits.shape[1]) or queries.logits.shape[1] < 0
    return masks if fits and covers((rows, columns), network.input_hw) else None


def _open(network: NetworkDescription) -> DetrMaskHead:
    masks = find_masks(network)
    if masks is None:
        raise TensorMismatchError(
            'Not an RF-DETR with masks: expected dets (1, queries, 4), labels (1, queries, '
            f'classes) and masks (1, queries, h, w), got {network}.',
            remedy='Export it with its own package, or choose another decoder.',
        )
    return DetrMaskHead(open_rfdetr(network), masks.name)


RFDETR_SEG = Family(
    'rfdetr_seg',
    'segment',
    RFDETR.preprocess,
    _open,
    layouts=tuple(
        replace(
            layout,
            outputs=(*layout.outputs, Out('B N h w', 'masks:1', ('masks',))),
            ignores_others=False,
        )
        for layout in RFDETR.layouts
    ),
)
