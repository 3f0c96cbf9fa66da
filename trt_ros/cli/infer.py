"""
Results of pictures and videos, as annotated files and JSON.

The task is that of the network: detection, segmentation, pose, classification or depth; embeddings
and undecoded outputs with --decoder.
results.json holds one entry per image or video frame, with "width", "height", "non_finite" where
outputs of the network had NaN or infinite values, which results lack, and, by task:

- detections: "label", "class_index", "score" and "xyxy" (left, top, right, bottom, in pixels of
  the image). A rotated box also has "cxcywh" (center, width, height) and "theta", the angle of its
  width in radians, clockwise from the image's x axis; its "xyxy" is the upright rectangle around
  it. An object with a mask has "mask", a compressed RLE of COCO; one with keypoints has
  "keypoints": x, y and visibility of each.
- mask: "classes" with the "fraction" of their pixels, and the "file" of class indices
  (NAME_mask.png; 255, or 65535 in 16 bits, is no class). With several outputs, "masks" by output.
- depth: "min", "median", "max", and the "file" of values (NAME_depth.tiff, float32).
- classes: the five best, each with its "score".
- tensors, with --decoder embedding or tensor: "shape" and "dtype" of each output, and the
  "tensors_file" of their values (NAME_tensors.npz); without a folder, the values.

A network of several inputs, or of arrays, takes .npz, .npy and .safetensors files: each is a run,
with an array per input by its name, or that of its topic in --inputs. Images are (height, width,
3) uint8 in BGR order. States go from file to file. Entries of such runs have no size.

--coco also writes detections, masks or keypoints in the results format of COCO, as pycocotools
and other evaluators read it. An image id is the number that the file is named (000000397133.jpg)
if all files are, else the place of the image, from 1; results.json has it, too. A category id is
that of COCO for its 80 classes, else the class index + 1. --annotations takes the ids from a
ground truth instead.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from trt_ros.cli._flags import add_flags, add_option_flags
from trt_ros.parameter_field import specifications
from trt_ros.runtime.options import TiledOptions
from trt_ros.vision.pixel_limit import PixelLimit
from trt_ros.vision.thresholds import ThresholdOptions


def add_arguments(parser: ArgumentParser) -> None:
    files = 'image or video, or a folder of them; or arrays (.npz) of the inputs'
    add_flags(
        parser,
        ('files FILE +', Path, None, files),
        (
            '--output DIR',
            Path,
            None,
            'folder of annotated files and results.json (default: results; none with --json)',
        ),
        ('--json', 'print the results to stdout'),
        ('--coco FILE.json', Path, None, 'also write results in COCO format'),
        (
            '--annotations FILE.json',
            Path,
            None,
            'ground truth in COCO format whose image and category ids the results of --coco get',
        ),
    )
    add_option_flags(parser, cls=PixelLimit)
    add_option_flags(parser, cls=ThresholdOptions)
    one_by_one = specifications(TiledOptions).keys() - {'frames_in_flight', 'contexts'}
    add_option_flags(parser, one_by_one)


def run(args: Namespace) -> int:
    """Run the network on all files; 1 when some have no result, or not a whole one."""
    from trt_ros.cli._infer import infer

    return infer(args)
