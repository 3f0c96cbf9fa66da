"""The sliced inference of `sahi` with a pipeline as its detection model."""

from typing import Any

import numpy as np

from trt_ros.vision.thresholds import Thresholds


def sliced(
    pipeline: Any, image: np.ndarray, wh: tuple[int, int], overlap: float, asked: Thresholds
) -> np.ndarray:
    """Return the boxes, scores and labels that sahi merges, (N, 6)."""
    from sahi.models.base import DetectionModel
    from sahi.prediction import ObjectPrediction

    class Model(DetectionModel):
        def check_dependencies(self, packages=None):
            pass

        def set_device(self, device=None):
            pass

        def set_model(self, model):
            self.model = model

        def perform_inference(self, image):
            self._original_predictions = self.model(np.ascontiguousarray(image), asked)

        def _create_object_prediction_list_from_original_predictions(
            self, shift_amount_list=None, full_shape_list=None
        ):
            shift, shape = np.ravel(shift_amount_list).tolist(), np.ravel(full_shape_list).tolist()
            self._object_prediction_list_per_image = [
                [
                    ObjectPrediction(
                        each.xyxy.tolist(),
                        each.label,
                        each.name,
                        score=each.score,
                        shift_amount=shift,
                        full_shape=shape,
                    )
                    for each in self._original_predictions
                ]
            ]

    model = Model(model=pipeline, confidence_threshold=asked.score)
    return sliced_by(model, image, wh, overlap, asked)


def sliced_by(
    model: Any, image: np.ndarray, wh: tuple[int, int], overlap: float, asked: Thresholds
) -> np.ndarray:
    """Return what sahi merges of one of its own detection models, see `sliced`."""
    from sahi.predict import get_sliced_prediction

    found = get_sliced_prediction(
        image,
        model,
        slice_width=wh[0],
        slice_height=wh[1],
        overlap_width_ratio=overlap,
        overlap_height_ratio=overlap,
        perform_standard_pred=False,
        postprocess_type='NMS',
        postprocess_match_metric='IOU',
        postprocess_match_threshold=asked.iou,
        verbose=0,
    ).object_prediction_list
    rows = [[*each.bbox.to_xyxy(), each.score.value, each.category.id] for each in found]
    return np.array(rows).reshape(-1, 6)
