"""Choice of the decoder of a network, and its head."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
import logging
from typing import Any, Generic, TypeVar, cast

from trt_ros.decode.boxes import BoxHead
from trt_ros.decode.points import PointHead
from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import Family, NetworkDescription
from trt_ros.families.head import Head
from trt_ros.families.layout import PointLayout
from trt_ros.families.match import bind
from trt_ros.families.onnx_nms import CutNmsHead
from trt_ros.families.registry import DETECTORS, choose_family
from trt_ros.results.labels import class_names
from trt_ros.tensors import Arrays, is_finite
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.regions import Tiles
from trt_ros.vision.thresholds import Thresholds

log = logging.getLogger('trt_ros.runtime')
HeadT = TypeVar('HeadT')
ResultT = TypeVar('ResultT')
ResultT_co = TypeVar('ResultT_co', covariant=True)


@dataclass(frozen=True)
class Decoder(Generic[ResultT_co]):
    """
    The chosen decoder of one network.

    :param name: name of the family.
    :param reason: reason for the choice, one line for the log.
    :param preprocess: fields of `Preprocess` that the family is trained with.
    :param head: decodes the outputs and holds their layout.
    :param constant_inputs: inputs beside the image, equal for every frame.
    :param is_training_known: whether `preprocess` is more than a usual default.
    :param tiles: tiles of each image, whose results are merged; None: of whole images.
    """

    name: str
    reason: str
    task: str
    preprocess: Mapping[str, object]
    head: Head[ResultT_co]
    constant_inputs: Arrays = field(default_factory=dict)
    is_training_known: bool = True
    tiles: Tiles | None = None

    @property
    def class_count(self) -> int | None:
        """Number of classes; None: the network leaves it open, or has none."""
        return self.head.class_count

    @property
    def finds_objects(self) -> bool:
        """Whether the results have boxes."""
        return self.task in ('detect', 'pose') or self.head.finds_instances

    @property
    def takes_batches(self) -> bool:
        """Whether each output has an axis for the images of a batch."""
        return self.head.takes_batches

    def __call__(
        self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds
    ) -> ResultT_co:
        """Decode the outputs for one image, of which no reference is kept; see `Head`."""
        tiles = self.tiles
        if tiles is None:
            return self.head(outputs, letterbox, thresholds)
        placement, origins = tiles.places(letterbox.image_wh)
        found = [
            self.head(_row(outputs, index), placement, thresholds) for index in range(tiles.count)
        ]
        return cast(ResultT_co, tiles.merge(found, origins, thresholds))


def _row(outputs: Arrays, index: int) -> Arrays:
    """Return the outputs of one image of a batch."""
    return {name: output[index : index + 1] for name, output in outputs.items()}


def decode_batch(
    decode: Callable[..., ResultT],
    outputs: Arrays,
    batch: int,
    letterboxes: Sequence[Letterbox],
    thresholds: Thresholds,
    on_nonfinite: Callable[[], None],
) -> list[ResultT]:
    """
    Decode the first images of a batch.

    :param decode: a Decoder.
    :param on_nonfinite: called for each image whose outputs have NaN or infinite values.
    """
    results = []
    for index, letterbox in enumerate(letterboxes):
        # The outputs of a single image may lack a batch axis.
        own = outputs if batch == 1 else _row(outputs, index)
        if not all(map(is_finite, own.values())):
            on_nonfinite()
        results.append(decode(own, letterbox, thresholds))
    return results


def choose_decoder(
    name: str,
    network: NetworkDescription,
    families: tuple[Family[Head[ResultT]], ...] = DETECTORS,  # type: ignore[assignment]
    *,
    has_background: bool = False,
) -> Decoder[ResultT]:
    """
    Choose the decoder by name, or by the description of the network.

    :param name: name of a family, or 'auto'.
    :param network: its number of classes is that of the user, and counts where the metadata has
        no names.
    :param has_background: the first named class is the background, which most networks do not
        count.
    :raises ParameterError: when there is no family of that name.
    :raises TensorMismatchError: when the outputs are not that family's; for 'auto', when no family
        or more than one matches.
    """
    named = len(class_names((), '', network.metadata, None))
    network = replace(network, class_count=named or network.class_count)
    without = None
    if has_background and network.class_count:
        without = replace(network, class_count=network.class_count - 1)
    family, reason = _choose_by_names(families, name, network, without)
    reading = bind(family, network) if network.trial else None
    if network.trial and reading:
        holds, text = network.trial(family, reading)
        reason = '; '.join(filter(None, (reason, text)))
        if holds is False:
            log.warning('Decoder %s has %s.', family.name, text)
    return Decoder(
        family.name,
        reason,
        family.task,
        family.preprocess,
        _open_by_names(family, network, without),
        family.constant_inputs(network),
        is_training_known=not family.words,
    )


def _choose_by_names(
    families: tuple[Family[HeadT], ...],
    name: str,
    network: NetworkDescription,
    without: NetworkDescription | None,
) -> tuple[Family[HeadT], str]:
    """Choose a family as `choose_family`, first without the background among the names."""
    if without is not None:
        with suppress(TensorMismatchError):  # It counts the background, or does not fit at all.
            return choose_family(families, name, without)
    return choose_family(families, name, network)


def _open_by_names(
    family: Family[HeadT], network: NetworkDescription, without: NetworkDescription | None
) -> HeadT:
    """
    Open a head for as many classes as there are names, else without the background.

    A head of another number of classes is the last choice: then the names are wrong.
    """
    for named in filter(None, (network, without, replace(network, class_count=None))):
        with suppress(TensorMismatchError):
            return open_head(family, named)
    return open_head(family, network)


def open_head(family: Family[HeadT], network: NetworkDescription) -> HeadT:
    """Open the head that decodes a network as one of a family, or raise TensorMismatchError."""
    reading = bind(family, network)
    if reading is None:
        raise TensorMismatchError(
            f'The outputs are not those of {family.name}: expected '
            f'{family.describe(network.input_hw)}; got {network}.',
            remedy=family.remedy,
        )
    kind: Any = family.head
    if reading.layout.is_cut:
        kind = CutNmsHead
    elif kind is None:
        kind = PointHead if isinstance(reading.layout, PointLayout) else BoxHead
    return cast(HeadT, kind(reading, family.remedy))
