"""Base classes and helpers of the model families: description and family of a network."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from trt_ros.errors import counted
from trt_ros.families.layout import Layout
from trt_ros.parameter_field import require_choices
from trt_ros.tensors import TensorSpec


def trained(
    resize: str, channel_order: str = 'rgb', scale: float = 1 / 255, **further: Any
) -> Mapping[str, Any]:
    """Return the fields of `Preprocess` that a family is trained with."""
    return {'resize': resize, 'channel_order': channel_order, 'scale': scale, **further}


#: Preprocessing of the YOLO families except YOLOX, and of the families derived from them.
YOLO_PREPROCESS = trained('letterbox', pad_value=114)
#: Preprocessing of networks that take pixels from 0 to 1, resized without padding.
STRETCH_PREPROCESS = trained('stretch')
#: Mean and standard deviation of COCO, in the order of BGR.
BGR_OF_COCO: Mapping[str, Any] = {
    'mean': (0.40789654, 0.44719302, 0.47026115),
    'std': (0.28863828, 0.27408164, 0.27809835),
}
#: Mean and standard deviation of ImageNet.
IMAGENET: Mapping[str, Any] = {'mean': (0.485, 0.456, 0.406), 'std': (0.229, 0.224, 0.225)}
#: Preprocessing of networks trained on ImageNet by torchvision, timm and transformers.
IMAGENET_PREPROCESS = trained('stretch', **IMAGENET)


class Opinion(NamedTuple):
    """Evidence of one kind: `holds` is True for the reading, False against it, or None."""

    holds: bool | None
    text: str = ''


@dataclass(frozen=True)
class NetworkDescription:
    """
    The tensors and metadata of a network, known before it runs.

    :param metadata: metadata of the ONNX file.
    :param input_hw: height and width of the network's images.
    :param class_count: number of classes that the user or the metadata names; None: unknown.
    :param strict: whether 'auto' refuses a family of shapes that other networks have, too, where
        nothing but the shape is for it, or anything is against it; one task to choose from is for
        it.
    :param trial: runs the network, and returns evidence about a reading of a family by the values
        of the outputs; None: the network cannot run.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    metadata: Mapping[str, str]
    input_hw: tuple[int, int]
    class_count: int | None = None
    strict: bool = False
    trial: Callable[[Any, Any], Opinion] | None = field(default=None, compare=False, repr=False)

    @property
    def only_output(self) -> TensorSpec:
        """The only output, of layouts with one."""
        (spec,) = self.outputs
        return spec

    @property
    def named_classes(self) -> str:
        """Number of named classes in words."""
        return counted(self.class_count or 0, 'named class')

    def __str__(self) -> str:
        outputs = '; '.join(map(str, self.outputs)) or 'none'
        height, width = self.input_hw
        named = f', {self.named_classes}' if self.class_count else ''
        return f'outputs {outputs}, for images of {width}x{height}{named}'


HeadT_co = TypeVar('HeadT_co', covariant=True)

MAX_DESCRIBED = 3  # Layouts in a message.


@dataclass(frozen=True)
class Family(Generic[HeadT_co]):
    """
    A model family that the parameter `decoder` can name; `auto` chooses by its layouts, see
    `evidence.Choice`.

    :param preprocess: fields of `Preprocess` that this family is trained with.
    :param head: class of the head, or a function of `Reading` and remedy; None: a `BoxHead` or
        `PointHead`.
    :param constants: inputs beside the image, equal for every frame: numbers by name, or 'h' and
        'w' for those of the network's images. 'mask' is any padding mask: zeros.
    :param layouts: the forms of the outputs; (): any.
    :param exporter: program that writes the metadata of its networks: 'Ultralytics' or 'YOLOv5';
        'none' of both, or 'any'.
    :param output_names: names that its exporter gives outputs.
    :param words: parts of output names that are evidence of a family whose shapes many other
        networks have, too; such a family has some.
    :param class_counts: numbers of classes of published data sets, evidence of such a family.
    :param networks: its networks, for the documentation.
    :param export: how they are exported, or the file, for the documentation and errors; '': as
        docs/models.md describes below its tables.
    :param remedy: remedy of other outputs, one sentence; by default that export.
    :param near_misses: layouts of similar networks that no family decodes, and what to do with
        such a network, one sentence.
    """

    name: str
    task: str
    preprocess: Mapping[str, object]
    constants: Mapping[str, Sequence[Any]] = field(default_factory=dict, hash=False)
    layouts: tuple[Layout, ...] = ()
    head: Callable[[Any, str], HeadT_co] | None = None
    exporter: Literal['any', 'none', 'Ultralytics', 'YOLOv5'] = 'none'
    output_names: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    class_counts: tuple[int, ...] = ()
    networks: str = ''
    export: str = ''
    remedy: str = ''
    near_misses: tuple[tuple[Layout, str], ...] = ()

    def __post_init__(self) -> None:
        require_choices(self)
        export = (
            f'the documented export, {self.export};' if self.export else 'the documented export,'
        )
        default = f'Use {export} or choose another decoder (docs/models.md).'
        object.__setattr__(self, 'remedy', self.remedy or default)

    def constant_inputs(self, network: NetworkDescription) -> dict[str, np.ndarray]:
        """Return the values of the inputs that are equal for every frame, by name."""
        sizes = dict(zip('hw', network.input_hw))
        mask = padding_mask(network.inputs)
        found: dict[str, np.ndarray] = {}
        for spec in network.inputs:
            if spec is mask and 'mask' in self.constants:
                dtype = 'uint16' if spec.dtype == 'bfloat16' else spec.dtype  # As in host memory.
                found[spec.name] = np.zeros((1, 1, *network.input_hw), dtype)
            elif spec.name in self.constants and spec.dtype != 'bfloat16':
                values = [sizes.get(value, value) for value in self.constants[spec.name]]
                found[spec.name] = np.array([values], spec.dtype)
        return found

    def describe(self, input_hw: tuple[int, int]) -> str:
        """Return the outputs of the first layouts for images of a size."""
        texts = dict.fromkeys(layout.describe(input_hw) for layout in self.layouts)
        return '; or '.join(list(texts)[:MAX_DESCRIBED])


def padding_mask(inputs: tuple[TensorSpec, ...]) -> TensorSpec | None:
    """Find the input that marks padded pixels of the image, (1, 1, h, w); None: there is none."""
    images = [spec for spec in inputs if len(spec.shape) == 4]
    masks = [spec for spec in images if spec.shape[1] == 1 and 'mask' in spec.name.lower()]
    if len(images) != 2 or len(masks) != 1:
        return None
    image, mask = (next(spec for spec in images if spec not in masks), masks[0])
    return mask if (image.shape[1], *image.shape[2:]) == (3, *mask.shape[2:]) else None


def has_sizes(network: NetworkDescription) -> bool:
    """Return whether no output has an open size, but for the batch."""
    return not any(-1 in spec.shape[1:] for spec in network.outputs)


def is_float(spec: TensorSpec) -> bool:
    """Return whether a tensor is of a floating-point type."""
    return spec.dtype in ('float16', 'bfloat16', 'float32', 'float64')
