"""Shapes, metadata, versions and tensors that contradict themselves."""

from collections.abc import Iterator

import numpy as np
from onnx import TensorProto, helper

from fuzz.graphs import FLOAT, INT64, MEAN, averaged, detector, headed, node

ADDED = f'{MEAN} a = Add(s, w)'


def shapes() -> Iterator[tuple[str, object]]:
    """Give declared inputs, outputs and metadata that make no sense."""
    for index, image in enumerate(
        (
            (),
            (0,),
            (1, 3),
            (1, 3, 0, 0),
            (1, 3, 10**9, 10**9),
            (1, 3, 2**62, 2**62),
            (2**31, 3, 64, 64),
            (1, 3, 100_000, 100_000),
            (1, 3, 2**32, 1),
            (0, 3, 64, 64),
            (1, 3, 65536, 65536),
            (1, 3, 64, 64, 64),
            (3, 64, 64),
            (1,) * 64,
            (1, 2**63 - 1),
            (1, 3, 20_000, 20_000),
            (10**6, 3, 640, 640),
            (1, 64, 64, 3),
            ('n', 'c', 'h', 'w'),
            (1, 1, 64, 64),
            (1, 3, 1, 1),
            (1, 3, 7, 7),
        )
    ):
        yield f'image_{index}', averaged(image=image)
    for index, head in enumerate(
        (
            (),
            (0,),
            (1, 7, 0),
            (1, 7, 2**40),
            (1, 2**40, 84),
            (1, 84, 7),
            (2**40,) * 3,
            (1, 4, 84),
            (1, 5, 84),
            (1, 3, 84),
            (1, 300, 6),
            (1, 3, 10, 10, 8),
            (1, 10**9),
            (1, 1, 64, 64),
            (1, 10**7, 64, 64),
            (7, 84),
            (1, 'a', 'b'),
            ('x', 'y', 'z'),
        )
    ):
        yield f'head_{index}', averaged(head=head)
        real = [size if isinstance(size, int) and size < 10**5 else 5 for size in head]
        weights = {'head_shape': np.array(real, np.int64)}
        yield f'head_real_{index}', averaged(head=head, weights=weights)
    for index, value in enumerate((np.nan, np.inf, -np.inf, 1e38, -1.0)):
        nodes = 'm = ReduceMean <keepdims = 0> (images) zero = Mul(m, z) sum = Add(zero, v)'
        weights = {'z': np.float32(0), 'v': np.float32(value)}
        yield f'answer_{index}', headed(nodes, weights=weights)
    dynamic = (1, 3, 'h', 'w')
    for index, imgsz in enumerate(
        (
            '[1000000000, 1000000000]',
            'float("inf")',
            '[1e999, 1e999]',
            '[inf, inf]',
            '[nan, 1]',
            '[-1, -1]',
            '[0, 0]',
            '640',
            '[640]',
            '["a", "b"]',
            '[' * 5000,
            '[65536, 65536]',
            '[1e9, 1e9]',
            '9' * 5000,
            '[20000, 20000]',
            '{}',
            '[1, 1]',
            '(64, 64)',
            '[10**9, 1]',
            '\x00',
            '[1e308*10, 1]',
            'é',
            '[9999999999999999999999, 1]',
        )
    ):
        yield f'imgsz_{index}', averaged(image=dynamic, metadata={'imgsz': imgsz})
    for index, names in enumerate(
        (
            "['\\ud800', 'b', 'c']",
            '[' * 10_000,
            '-' * 50_000 + '1',
            '{0: None, 1: 2, 2: []}',
            '["a"] * 10**9',
            "{0: 'a', 5: 'b'}",
            '(' * 100 + ')' * 100,
            '{' * 999,
            '"' + 'a' * 10**6 + '"',
            "['a', 'b', 'c', 'd']",
            '\x00',
            'b"x"',
            '{1e999: "a"}',
            "['a\\x00b', '\\x1b[2J', '\\u202e']",
            '\n' * 10_000,
            'set()',
            '[[]] * 3',
        )
    ):
        yield f'names_{index}', averaged(metadata={'names': names})
    for kind in (*range(0, 28), 99, -1, 2**31 - 1):
        yield f'type_of_input_{kind}', averaged(kind=kind)


def damaged_tensors() -> Iterator[tuple[str, object]]:
    """Give weights whose bytes, type and shape contradict each other."""

    def tensor(**fields):
        return TensorProto(**{'name': 'w', 'data_type': FLOAT, 'dims': [1], **fields})

    cases = {
        'short_raw': {'raw_data': b'\0\0'},
        'no_raw': {'raw_data': b''},
        'no_data': {},
        'long_raw': {'raw_data': b'\0' * 99},
        'type_0': {'data_type': 0, 'raw_data': b'\0' * 4},
        'type_99': {'data_type': 99, 'raw_data': b'\0' * 4},
        'type_negative': {'data_type': -5, 'raw_data': b'\0' * 4},
        'negative_dim': {'dims': [-4], 'raw_data': b'\0' * 4},
        'huge_dims': {'dims': [2**40, 2**40], 'raw_data': b'\0' * 4},
        'overflow_dims': {'dims': [2**32, 2**32], 'raw_data': b''},
        'zero_and_huge': {'dims': [0, 2**62], 'raw_data': b''},
        'large_dim': {'dims': [2**33]},
        'both': {'raw_data': b'\0' * 4, 'float_data': [1.0]},
        'wrong_field': {'int64_data': [1]},
        'few_floats': {'dims': [5], 'float_data': [1.0]},
        'int64_misshapen': {'data_type': INT64, 'dims': [3], 'int64_data': [1]},
        'int64_short_raw': {'data_type': INT64, 'dims': [3], 'raw_data': b'\0' * 9},
        'int64_extreme': {'data_type': INT64, 'dims': [2], 'int64_data': [2**63 - 1, -(2**63)]},
        'strings': {'data_type': TensorProto.STRING, 'string_data': [b'\xff']},
        'int4_short': {'data_type': TensorProto.INT4, 'dims': [9], 'raw_data': b'\0'},
        'float8': {'data_type': TensorProto.FLOAT8E4M3FN, 'dims': [3], 'raw_data': b'\0'},
        'complex': {'data_type': TensorProto.COMPLEX64, 'raw_data': b'\0' * 3},
        'bool_17': {'data_type': TensorProto.BOOL, 'raw_data': b'\x11'},
        'many_dims': {'dims': [1] * 1000, 'raw_data': b'\0' * 4},
    }
    for name, fields in cases.items():
        weights = tensor(**fields)
        yield f'tensor_{name}', averaged(ADDED, more_weights=[weights])
        yield f'constant_{name}', averaged(node('Constant', [], ['w'], value=weights), ADDED)
    for index, (location, offset, length) in enumerate(
        (
            ('/etc/passwd', 0, 4),
            ('../secret', 0, 4),
            ('/dev/zero', 0, 4),
            ('nowhere', 0, 4),
            ('.', 0, 4),
            ('', 0, 4),
            ('data.bin', 2**62, 4),
            ('data.bin', -4, 4),
            ('data.bin', 0, 2**62),
            ('data.bin', 0, 0),
            ('pipe', 0, 4),
            ('data.bin', 'x', 4),
        )
    ):
        outside = tensor(data_location=TensorProto.EXTERNAL)
        for key, value in (('location', location), ('offset', offset), ('length', length)):
            outside.external_data.add(key=key, value=str(value))
        yield f'external_{index}', averaged(ADDED, more_weights=[outside])


def versions() -> Iterator[tuple[str, object]]:
    """Give models of versions and with parts that nobody writes."""
    for ir_version in (0, 1, 99, 2**62, -1):
        made = detector()
        made.ir_version = ir_version
        yield f'ir_version_{ir_version}', made
    for opset in (0, 1, 5, 99, -1, 2**62):
        made = detector()
        made.opset_import[0].version = opset
        yield f'opset_{opset}', made
    for name, change in {
        'no_opset': lambda made: made.ClearField('opset_import'),
        'no_graph': lambda made: made.ClearField('graph'),
        'no_nodes': lambda made: made.graph.ClearField('node'),
        'no_inputs': lambda made: made.graph.ClearField('input'),
        'no_outputs': lambda made: made.graph.ClearField('output'),
        'no_weights': lambda made: made.graph.ClearField('initializer'),
        'no_names': lambda made: [each.ClearField('output') for each in made.graph.node],
        'no_op': lambda made: setattr(made.graph.node[0], 'op_type', ''),
        'unknown_op': lambda made: setattr(made.graph.node[0], 'op_type', 'Frobnicate'),
        'unknown_domain': lambda made: setattr(made.graph.node[0], 'domain', 'x.y'),
        'no_type': lambda made: made.graph.input[0].ClearField('type'),
        'long_name': lambda made: setattr(made.graph.input[0], 'name', 'x' * 10**6),
        'nul_name': lambda made: setattr(made.graph.node[0], 'name', 'a\0b'),
        'two_inputs': lambda made: made.graph.input.append(made.graph.input[0]),
        'two_outputs': lambda made: made.graph.output.append(made.graph.output[0]),
        'two_weights': lambda made: made.graph.initializer.append(made.graph.initializer[0]),
        'many_metadata': lambda made: helper.set_model_props(
            made, {f'k{i}': 'v' * 100 for i in range(10_000)}
        ),
    }.items():
        made = detector()
        change(made)
        yield name, made
