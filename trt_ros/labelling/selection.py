"""Images worth annotating: those of highest interest by a rule, as a data set with pictures."""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
import heapq
from itertools import count
import json
from pathlib import Path
from typing import Any

import numpy as np

from trt_ros.errors import ParameterError
from trt_ros.labelling.coco import CocoLabels
from trt_ros.labelling.results import ImageHeader
from trt_ros.labelling.task import SelectionOptions
from trt_ros.regular_file import replacing
from trt_ros.results.base import Result
from trt_ros.results.boxes import Objects
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.nms import MIN_IOU, iou
from trt_ros.vision.thresholds import Thresholds


class Selection:
    """
    A receiver of results that keeps the images of highest interest, with their pictures.

    Of each topic, it keeps one image per second at most: the next ones show the same.

    :param folder: gets the pictures and annotations.json, written at close().
    :raises ParameterError: when the results have no boxes, or the class is unknown; also errors of
        Pipeline.open() with the other network.
    """

    def __init__(
        self,
        folder: Path,
        pipeline: Pipeline[Any],
        origin: Mapping[str, Any],
        options: SelectionOptions,
        network: LabeledOptions,
        thresholds: Thresholds,
    ) -> None:
        rule, _, argument = options.rule.partition(':')
        names = list(pipeline.class_names)
        has_objects = pipeline.decoder.finds_objects
        if not has_objects or (rule == 'rare' and argument not in names):
            raise ParameterError(
                f'Images cannot be selected by {options.rule!r}.',
                cause=f'The classes are {", ".join(names[:20])}{", .." * (len(names) > 20)}.'
                if has_objects
                else 'The network finds no objects.',
                remedy='Correct --select, or choose another network.',
            )
        self._label = names.index(argument) if rule == 'rare' else -1
        self._other: Pipeline[Any] | None = None
        if rule == 'disagree':
            other = replace(
                network, model_path=argument, decoder='auto', labels=(), labels_path=''
            )
            self._other = Pipeline.open(other)
            if any(ours != its for ours, its in zip(names, self._other.class_names)):
                self._other.close()
                raise ParameterError(
                    f'{argument} has other classes than the network of --model.',
                    cause=f'They are {", ".join(list(self._other.class_names)[:20])}, and '
                    f'{", ".join(names[:20])}.',
                    remedy='Compare networks of the same classes.',
                )
        self._folder, self._budget, self._thresholds = folder, options.budget, thresholds
        folder.mkdir()
        self._labels = CocoLabels(folder / 'annotations.json', pipeline, origin, folder)
        self._best: dict[str, tuple[Any, ...]] = {}  # Of the present second, by topic.
        self._kept: list[tuple[Any, ...]] = []
        self._numbers = count()

    def write(self, topic: str, header: ImageHeader, frame: Frame, result: Result) -> None:
        """Take an image if its interest is high enough."""
        interest = self._interest(frame, result)
        last = self._best.get(topic)
        if last is not None and last[3].stamp[0] != header.stamp[0]:
            self._keep(self._best.pop(topic))
            last = None
        if interest > 0 and (last is None or interest > last[0]):
            # Its number decides between equal ones: results have no order.
            self._best[topic] = interest, -next(self._numbers), topic, header, frame, result

    def _interest(self, frame: Frame, result: Any) -> float:
        """Return how much an image is worth, 0 to 1."""
        if not isinstance(result, Objects):
            return 0.0
        if self._other is not None:
            return unmatched_score(result, self._other.infer(frame, self._thresholds))
        if self._label >= 0:
            return float(max(result.scores[result.labels == self._label], default=0.0))
        return float(max(1 - 2 * np.abs(result.scores - 0.5), default=0.0))

    def _keep(self, candidate: tuple[Any, ...]) -> None:
        """Keep an image, with its picture on the disk, if it is among the best."""
        interest, number, topic, header, frame, result = candidate
        if len(self._kept) >= self._budget:
            if candidate[:2] < self._kept[0][:2]:
                return
            *_, worst, _, _ = heapq.heappop(self._kept)
            (self._folder / worst).unlink()
        name = self._labels.picture_name(topic, header)
        self._labels.write_picture(name, frame)
        heapq.heappush(self._kept, (interest, number, name, header, result))

    def close(self) -> None:
        """Write the images, the best first, or raise ParameterError; may be called twice."""
        with closing(self._labels):
            for candidate in self._best.values():
                self._keep(candidate)
            kept, self._best, self._kept = sorted(self._kept, reverse=True), {}, []
            for interest, _, name, header, result in kept:
                self._labels.append(name, header, result, interest=round(interest, 5))
        if self._other is not None:
            self._other.close()


def merge_selection(path: Path, target: Path, budget: int) -> None:
    """
    Move the images of a selection into that of a job, which keeps those of highest interest.

    Pictures stay in the folders of their selections; those of other images are deleted.

    :param path: JSON file of the selection, if there is one.
    :param target: JSON file of the job, in a folder above.
    """
    if not path.exists():
        return
    found = dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]()
    for file in (target, path) if target.exists() else (path,):
        content = json.loads(file.read_text())
        objects = defaultdict[int, list[dict[str, Any]]](list)
        for each in content['annotations']:
            objects[each['image_id']].append(each)
        for image in content['images']:
            picture = file.parent / image['file_name']
            if picture.exists():  # Not of a recording that has started over.
                name = picture.relative_to(target.parent).as_posix()
                found[name] = {**image, 'file_name': name}, objects[image['id']]
    order = sorted(found.values(), key=lambda each: -each[0]['interest'])
    images, annotations = list[dict[str, Any]](), list[dict[str, Any]]()
    for number, (image, mine) in enumerate(order[:budget], 1):
        images.append({**image, 'id': number})
        for each in mine:
            annotations.append({**each, 'id': len(annotations) + 1, 'image_id': number})
    content['info']['trt_ros'].pop('recording', None)  # There are several.
    with replacing(target) as part:
        part.write_text(json.dumps({**content, 'images': images, 'annotations': annotations}))
    for image, _ in order[budget:]:
        (target.parent / image['file_name']).unlink()
    path.unlink()


def unmatched_score(found: Objects, others: Objects) -> float:
    """Return the highest score of an object of either result without a partner in the other."""
    worst = 0.0
    for one, other in ((found, others), (others, found)):
        alike = iou(one.xyxy[:, None], other.xyxy) >= MIN_IOU
        alike &= one.labels[:, None] == other.labels
        worst = max(worst, float(max(one.scores[~alike.any(axis=1)], default=0.0)))
    return worst
