"""Networks that select by value, in parts of which shapes depend on the data."""

from pathlib import Path

import numpy as np

from support.save_network import save_text

CONV = 'c = Conv<kernel_shape=[1,1]>(x, w)  m = Greater(c, half)'
NETWORKS = {  # Body, outputs.
    'indices': (f'{CONV}  where = NonZero(m)', 'int64[4,n] where'),
    'selection': (
        f'{CONV}  where = NonZero(m)  rows = Transpose<perm=[1,0]>(where)'
        '  picked = GatherND(c, rows)  whole = Relu(c)',
        'float[n] picked, float[1,4,8,8] whole',
    ),
    'shapes': (  # The tail needs a shape of the head, and the image itself.
        f'{CONV}  s = Shape(c)  flat = Flatten<axis=0>(m)  one = Squeeze(flat)'
        '  pixels = Reshape(c, minus)  kept = Compress<axis=0>(pixels, one)'
        '  back = Reshape(c, s)  zero = Sub(x, x)  total = ReduceSum<keepdims=0>(zero)'
        '  picked = Add(kept, total)  again = Identity(back)',
        'float[n] picked, float[1,4,8,8] again',
    ),
    'nms': (
        f'{CONV}  flat = Reshape(c, rows4)  boxes = Slice(flat, begin, end, axis1)'
        '  score = Slice(flat, begin, unit, axis2)  s3 = Transpose<perm=[0,2,1]>(score)'
        '  chosen = NonMaxSuppression(boxes, s3, ten, half1)  first = Add(chosen, chosen)'
        '  second = NonMaxSuppression(boxes, s3, ten)',
        'int64[n,3] first, int64[k,3] second',
    ),
}


def write(path: Path, name: str) -> Path:
    body, outputs = NETWORKS[name]
    constants = {
        'w': np.random.default_rng(1).normal(size=(4, 3, 1, 1)),
        'half': np.float32(0.5),
        'half1': np.float32([0.5]),
        'minus': np.int64([-1]),
        'rows4': np.int64([1, -1, 4]),
        'begin': np.int64([0]),
        'end': np.int64([64]),
        'unit': np.int64([1]),
        'axis1': np.int64([1]),
        'axis2': np.int64([2]),
        'ten': np.int64([10]),
    }
    text = f'(float[1,3,8,8] x) => ({outputs}) {{ {body} }}'
    return save_text(path, text, constants=constants, metadata={'names': 'of classes'}, opset=18)
