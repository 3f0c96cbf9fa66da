"""
Exports by the libraries of networks, with the options that this package needs.

`trt-ros export` runs it with the library, the source, the output, and maybe height and width.
"""

from collections.abc import Sequence
from pathlib import Path
import shutil
import sys
from typing import Any

OPSET = 17
#: Outputs that are decoded, of networks with more of them.
DECODED = ('class_queries_logits', 'masks_queries_logits', 'logits', 'pred_boxes', 'pred_masks')


def ultralytics(source: str, output: Path, size: Sequence[int]) -> None:
    """Export a checkpoint of Ultralytics; it downloads one of its own that is not there."""
    import ultralytics

    name = Path(source).name
    model = (ultralytics.RTDETR if name.startswith('rtdetr') else ultralytics.YOLO)(source)
    options = {'imgsz': list(size)} if size else {}
    path = model.export(format='onnx', simplify=False, opset=OPSET, **options)
    shutil.move(path, output)


def torchvision(source: str, output: Path, size: Sequence[int]) -> None:
    """Export a classifier or a network of masks with its newest weights and their names."""
    import onnx
    import torch
    from torchvision import models

    weights = models.get_model_weights(source).DEFAULT
    network = models.get_model(source, weights=weights).eval()
    if hasattr(network, 'aux_classifier'):
        network.aux_classifier = None  # Used in training only.
    crop = getattr(weights.transforms(), 'crop_size', None) or [520]
    image = torch.rand(1, 3, *(size or (crop[0], crop[-1])))
    torch.onnx.export(network, (image,), str(output), opset_version=OPSET, dynamo=False)
    model = onnx.load(str(output))
    onnx.helper.set_model_props(model, {'names': repr(list(weights.meta['categories']))})
    onnx.save(model, str(output))


def transformers(source: str, output: Path, size: Sequence[int]) -> None:
    """Export the network of a checkpoint, with the files that describe it beside it."""
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(source)
    network: Any = getattr(transformers, config.architectures[0]).from_pretrained(source).eval()
    side = getattr(config, 'image_size', None) or 224
    image = torch.rand(
        1, 3, *(size or (side if isinstance(side, (list, tuple)) else (side, side)))
    )
    with torch.no_grad():
        found = {name: value for name, value in network(image).items() if torch.is_tensor(value)}
    names = [name for name in DECODED if name in found] or list(found)

    class Decoded(torch.nn.Module):
        """The network with the outputs that are decoded."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, pixel_values: Any) -> Any:
            outputs = self.network(pixel_values)
            return tuple(outputs[name] for name in names)

    torch.onnx.export(
        Decoded().eval(),
        (image,),
        str(output),
        input_names=['pixel_values'],
        output_names=names,
        opset_version=OPSET,
        dynamo=False,
    )
    config.save_pretrained(output.parent)
    transformers.AutoImageProcessor.from_pretrained(source).save_pretrained(output.parent)


def rfdetr(source: str, output: Path, size: Sequence[int]) -> None:
    """Export a network of RF-DETR, by the name of its class."""
    import rfdetr

    options = {'resolution': size[0]} if size else {}
    model = getattr(rfdetr, source)(**options)
    path = model.export(output_dir=str(output.parent / f'.{output.name}'), verbose=False)
    shutil.move(path, output)
    shutil.rmtree(output.parent / f'.{output.name}')


def main(library: str, source: str, output: str, *size: str) -> None:
    """Export with one of the functions of this module."""
    globals()[library](source, Path(output).absolute(), [int(each) for each in size])


if __name__ == '__main__':
    main(*sys.argv[1:])
