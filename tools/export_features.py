"""
Choice of the best keypoints and their descriptors behind a network: SuperPoint, XFeat.

A development tool that the package itself never imports:

    python tools/export_features.py xfeat.onnx xfeat_512.onnx --input-size 480 640 --match 0.82

The network has planes of an eighth of the image's size: 65 logits, of the 8 x 8 pixels of a cell
and of none of them; descriptors; and maybe one plane of reliabilities.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trt_ros.errors import ModelError

CELL, LOGITS, OPSET = 8, 65, 17
#: Operators in the text form of ONNX. The first among equal cosines is the nearest.
_FEATURES = """
    shares = Softmax <axis = 1> (logits)
    pixels = Slice (shares, zero, pixel_count, one)
    heat = DepthToSpace <blocksize = 8> (pixels)
    highest = MaxPool <kernel_shape = [{kernel}, {kernel}], pads = [{pads}]> (heat)
    is_peak = Equal (heat, highest)
    {weighted}
    peaks = Where (is_peak, weighted, nothing)
    rows = Reshape (peaks, row)
    scores, places = TopK (rows, count)
    columns = Mod (places, width)
    lines = Div (places, width)
    column = Unsqueeze (columns, last)
    line = Unsqueeze (lines, last)
    place = Concat <axis = 2> (column, line)
    keypoints = Cast <to = 1> (place)
    centers = Add (keypoints, half)
    scaled = Mul (centers, scale)
    shifted = Sub (scaled, unit)
    grid = Unsqueeze (shifted, one)
    sampled = GridSample <mode = "bilinear", padding_mode = "border"> (planes, grid)
    squeezed = Squeeze (sampled, two)
    turned = Transpose <perm = [0, 2, 1]> (squeezed)
    squares = Mul (turned, turned)
    sums = ReduceSum (squares, last)
    lengths = Sqrt (sums)
    norms = Max (lengths, tiny)
    descriptors = Div (turned, norms)
"""
_MATCHES = """
    previous = Transpose <perm = [0, 2, 1]> (previous_descriptors)
    cosines = MatMul (descriptors, previous)
    nearest = ArgMax <axis = 2, keepdims = 0> (cosines)
    back = ArgMax <axis = 1, keepdims = 0> (cosines)
    returned = GatherElements <axis = 1> (back, nearest)
    is_mutual = Equal (returned, order)
    at = Unsqueeze (nearest, two)
    cosine = GatherElements <axis = 2> (cosines, at)
    own_cosine = Squeeze (cosine, two)
    is_near = GreaterOrEqual (own_cosine, limit)
    is_match = And (is_mutual, is_near)
    is_keypoint = Greater (scores, nothing)
    is_both = And (is_match, is_keypoint)
    found = Where (is_both, nearest, none)
    matches = Cast <to = 6> (found)
"""


def add_features(
    model: Any, input_hw: tuple[int, int], count: int, radius: int = 2, min_match: float = 0.0
) -> Any:
    """
    Return the model with the outputs keypoints, scores and descriptors of the best `count` peaks.

    A pixel is a keypoint if none within `radius` has a higher probability; with reliabilities, the
    score is the product of both. Descriptors are interpolated between the centers of cells, and
    have a norm of 1. Keypoints are x, y of pixels; those of a score of 0 fill the count.

    :param input_hw: size of the images, in multiples of 8.
    :param min_match: with a cosine above 0, `matches` has per keypoint the index of the nearest
        `previous_descriptors`, if that is mutual and the cosine as high, else -1.
    :raises ModelError: when the network has other outputs, or is of an older opset.
    """
    import onnx

    height, width = input_hw
    planes = {_channels(each): each.name for each in model.graph.output}
    sizes = sorted(set(planes) - {LOGITS, 1})
    opset = next(each.version for each in model.opset_import if not each.domain)
    if LOGITS not in planes or len(sizes) != 1 or height % CELL or width % CELL or opset < 16:
        listed = ', '.join(f'{name} of {channels} planes' for channels, name in planes.items())
        raise ModelError(
            f'This is no network of keypoints for images of {width}x{height}.',
            cause=f'Its outputs are {listed}; its opset is {opset}.',
            remedy=f'Export logits of {LOGITS} planes and descriptors, without NMS, with opset '
            f'{OPSET}, and choose a size in multiples of {CELL}.',
        )
    (size,) = sizes
    shape = f'{height // CELL},{width // CELL}'
    inputs = [f'float[1,{LOGITS},{shape}] logits', f'float[1,{size},{shape}] planes']
    flows = [(f'network/{planes[LOGITS]}', 'logits'), (f'network/{planes[size]}', 'planes')]
    weighted = 'weighted = Identity (heat)'
    if 1 in planes:
        inputs.append(f'float[1,1,{shape}] reliability')
        flows.append((f'network/{planes[1]}', 'reliability'))
        weighted = """large = Resize <mode = "linear"> (reliability, , , image)
            weighted = Mul (heat, large)"""
    body = _FEATURES.format(
        kernel=2 * radius + 1, pads=', '.join([str(radius)] * 4), weighted=weighted
    )
    outputs = ['keypoints', 'scores', 'descriptors']
    results = [f'float[1,{count},2]', f'float[1,{count}]', f'float[1,{count},{size}]']
    constants = {
        **{'zero': [0], 'one': [1], 'two': [2], 'last': [-1], 'count': [count]},
        **{'pixel_count': [CELL * CELL], 'row': [1, -1], 'image': [1, 1, height, width]},
        **{'width': width, 'none': -1, 'order': range(count)},
    }
    numbers = {
        **{'nothing': 0, 'half': 0.5, 'unit': 1, 'tiny': 1e-12, 'limit': min_match},
        'scale': [2 / width, 2 / height],
    }
    arrays = {name: np.array(value, np.int64) for name, value in constants.items()}
    arrays |= {name: np.array(value, np.float32) for name, value in numbers.items()}
    if min_match:
        body += _MATCHES
        inputs.append(f'float[1,{count},{size}] previous_descriptors')
        outputs.append('matches')
        results.append(f'int32[1,{count}]')
    given = ', '.join(f'{kind} {name}' for kind, name in zip(results, outputs))
    tail = onnx.parser.parse_model(
        f'<ir_version: {model.ir_version}, opset_import: ["" : {opset}]> '
        f'features ({", ".join(inputs)}) => ({given}) {{ {body} }}'
    )
    used = {name for node in tail.graph.node for name in node.input}
    for name in sorted(used & arrays.keys()):
        tail.graph.initializer.append(onnx.numpy_helper.from_array(arrays[name], name))
    (image,) = model.graph.input
    for axis, length in zip((0, 2, 3), (1, height, width)):
        image.type.tensor_type.shape.dim[axis].dim_value = length
    del model.graph.value_info[:]
    network = onnx.compose.add_prefix(model, 'network/', rename_inputs=False)
    kept_names = {'rename_inputs': False, 'rename_outputs': False}
    tail = onnx.compose.add_prefix(tail, 'features/', **kept_names)
    merged = onnx.compose.merge_models(network, tail, flows, outputs=outputs)
    onnx.checker.check_model(merged, full_check=True)
    return merged


def _channels(output: Any) -> int:
    sizes = [each.dim_value for each in output.type.tensor_type.shape.dim]
    return sizes[1] if len(sizes) == 4 else 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    import onnx

    parser = argparse.ArgumentParser(description=__doc__.partition('\n\n')[0])
    parser.add_argument('network', type=Path, help='ONNX file of SuperPoint, XFeat or the like')
    parser.add_argument('output', type=Path, help='ONNX file to write')
    parser.add_argument('--input-size', required=True, type=int, nargs=2, metavar=('H', 'W'))
    parser.add_argument('--count', type=int, default=512, help='keypoints per image; 512')
    parser.add_argument('--radius', type=int, default=2, help='of a peak, in pixels; 2')
    parser.add_argument(
        '--match', type=float, default=0.0, help='least cosine of a match with the last image'
    )
    args = parser.parse_args(arguments)
    model = add_features(
        onnx.load(args.network), tuple(args.input_size), args.count, args.radius, args.match
    )
    onnx.save(model, args.output)


if __name__ == '__main__':
    main()
