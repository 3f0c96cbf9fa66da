"""Advice on an export: what keeps TensorRT from fusions and fast kernels, and what to change."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
import math
import re
from types import MappingProxyType
from typing import Any

from trt_ros.engine.builder.layers import EngineLayer
from trt_ros.engine.builder.onnx_nodes import (
    HEAVY,
    MODELOPT,
    VIEWS,
    attribute,
    last_layers,
    layers_by_precision,
    node_key,
    shape_of,
    title,
    values_of,
)

_SEEN_THROUGH = {*VIEWS, 'Cast', 'Dropout'}
#: TensorRT moves Q/DQ across them.
_COMMUTE = {*_SEEN_THROUGH, 'MaxPool', 'Slice', 'Split', 'Concat', 'Gather'}
_SCORES = _SEEN_THROUGH | {'Add', 'Mul', 'Div', 'Sub', 'Where', 'Clip'}
#: Of 40 operators between product and Softmax, those that tensorrt_rtx 1.5 does not fuse.
_SPLITTING = {'Relu', 'Tanh', 'Sigmoid', 'Elu', 'Erf', 'Mish', 'Pow'}
_FUSED = {'BatchNormalization', 'Relu', 'Clip', 'LeakyRelu', 'Sigmoid', 'Mul', 'HardSwish'}
_DQ, _Q = 'DequantizeLinear', 'QuantizeLinear'
_QUANTIZED = {_DQ, *MODELOPT}
LARGEST_HEAD = 256
#: Larger weights are no shapes: their values are not needed.
_LARGEST_SHAPE = 1024


class _Graph:
    """A graph with the producers and consumers of its tensors."""

    def __init__(self, model: Any) -> None:
        self.model, self.graph = model, model.graph
        self.outputs = {value.name for value in model.graph.output}
        self.producers = {name: node for node in model.graph.node for name in node.output}
        self.consumers: dict[str, list[Any]] = {}
        for node in model.graph.node:
            for name in node.input:
                self.consumers.setdefault(name, []).append(node)
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Known shapes of the tensors, with a dynamic batch of one."""
        shapes = {name: tuple(each.dims) for name, each in self.constants.items()}
        for name, value in values_of(_with_batch(self.model)).items():
            shape = shape_of(value)
            if shape is not None and -1 not in shape:
                shapes[name] = shape
        return shapes

    def source(self, name: str, through: set[str] = _SEEN_THROUGH) -> Any | None:
        node = self.producers.get(name)
        while node is not None and node.op_type in through:
            node = next(filter(None, map(self.producers.get, node.input)), None)
        return node

    def is_quantized(self, name: str) -> bool:
        node = self.source(name, _COMMUTE)
        return node is not None and node.op_type in _QUANTIZED

    def weight(self, node: Any) -> str:
        """Return the constant that holds the weights of a layer, '' if they are computed."""
        name = node.input[1] if len(node.input) > 1 else ''
        while name and name not in self.constants:
            before = self.producers.get(name)
            is_view = before is not None and before.op_type in {*_SEEN_THROUGH, *_QUANTIZED, _Q}
            name = before.input[0] if before is not None and is_view else ''
        return name

    @cached_property
    def layers(self) -> list[Any]:
        """Convolutions and matrix products with constant weights."""
        return [node for node in self.graph.node if node.op_type in HEAVY and self.weight(node)]


def _with_batch(model: Any) -> Any:
    """Return a copy without the values of weights, whose inputs have a batch size of one."""
    copy = type(model)()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if math.prod(tensor.dims) > _LARGEST_SHAPE:
            for field in ('raw_data', 'float_data', 'int32_data', 'int64_data', 'double_data'):
                tensor.ClearField(field)
    is_dynamic = False
    for value in copy.graph.input:
        dims = value.type.tensor_type.shape.dim
        if dims and not dims[0].HasField('dim_value'):
            dims[0].dim_value, is_dynamic = 1, True
    if is_dynamic:
        for values in (copy.graph.output, copy.graph.value_info):
            for value in values:  # Shapes of another batch size would contradict this one.
                value.type.tensor_type.ClearField('shape')
    return copy


def advise_on_model(model: Any) -> list[str]:
    """Return lines on a ModelProto, each with the change to its export."""
    graph = _Graph(model)
    return [*_sizes(graph), *_attention(graph), *advise_on_quantization(model)]


def _sizes(graph: _Graph) -> Iterator[str]:
    odd, step = list[str](), 8
    last = set(map(node_key, last_layers(graph.graph)))
    for node in graph.layers:
        channels = [size for size in graph.constants[graph.weight(node)].dims[:2] if size > 4]
        if attribute(node, 'group', 1) != 1 or node_key(node) in last:
            continue
        wanted = 32 if graph.is_quantized(node.input[0]) else 8
        if any(size % wanted for size in channels):
            odd.append(f'{title(node)} {"x".join(map(str, channels))}')
            step = max(step, wanted)
    if odd:
        yield (
            f'channels that are no multiple of {step}: {_some(odd, len(graph.layers))}. Export '
            f'multiples of {step} channels: tensor cores take the same time for them'
        )
    products = [node for node in graph.layers if node.op_type in ('Gemm', 'MatMul')]
    for value in graph.graph.input if products else ():
        batch = next((dim.dim_value for dim in value.type.tensor_type.shape.dim), 0)
        if batch > 1 and batch % 8 and value.name not in graph.constants:
            yield (
                f'a batch of {batch} ({value.name}): its matrix products take as long as a batch '
                f'of {-(-batch // 8) * 8}. Export that, or a dynamic batch'
            )


def _attention(graph: _Graph) -> Iterator[str]:
    """Yield lines on attention that TensorRT does not fuse into one kernel."""
    blocks = 0
    reasons: dict[str, list[str]] = {}
    for node in graph.graph.node:
        is_softmax = node.op_type == 'Softmax' and node.input
        product = graph.source(node.input[0], _SCORES | _SPLITTING) if is_softmax else None
        readers = graph.consumers.get(node.output[0], [])
        values = [each for each in readers if each.op_type in ('MatMul', *_SEEN_THROUGH)]
        if product is None or product.op_type not in ('MatMul', 'Einsum') or not values:
            continue
        blocks += 1
        size = graph.shapes.get(product.input[0], (0,))[-1]
        axis = attribute(node, 'axis', -1)
        rank = len(graph.shapes.get(node.output[0], ()))
        between = getattr(graph.source(node.input[0], _SCORES), 'op_type', '')
        for reason, is_true in (
            (
                'its weights are used elsewhere, too. Export without them (need_weights=False, '
                'output_attentions=False)',
                len(readers) > 1 or node.output[0] in graph.outputs,
            ),
            (
                f'heads have {size} channels. Export heads of a multiple of 8 channels, at most '
                f'{LARGEST_HEAD}',
                bool(size % 8 or size > LARGEST_HEAD),
            ),
            (
                f'{between} is between product and Softmax. Export Relu as Clip; Tanh as '
                '1 - 2 / (1 + Exp(2x)), Sigmoid as 1 / (1 + Exp(-x)); or leave it out',
                between in _SPLITTING,
            ),
            (
                f'Softmax is along axis {axis}. Export it along the last axis',
                bool(rank) and axis % rank != rank - 1,
            ),
        ):
            if is_true:
                reasons.setdefault(reason, []).append(title(node))
    for reason, names in reasons.items():
        yield f'attention that does not fuse: {_some(names, blocks)}: {reason}'


def advise_on_quantization(model: Any) -> list[str]:
    """Return lines on the Q/DQ nodes of a ModelProto, by NVIDIA's rules of their placement."""
    graph = _Graph(model)
    is_quantized = any(node.op_type in {_Q, *_QUANTIZED} for node in model.graph.node)
    if not (graph.layers and is_quantized):
        return []
    of_blocks = {
        name
        for key, names in layers_by_precision(model.graph).items()
        if key.startswith(('int4', 'nvfp4', 'mxfp8'))
        for name in names
    }
    both, alone, weights, inputs, neither, between = [list[Any]() for _ in range(6)]
    for layer in graph.layers:
        reads, has = (graph.is_quantized(name) for name in layer.input[:2])
        of_weight = both if reads else alone if node_key(layer) in of_blocks else inputs
        (of_weight if has else weights if reads else neither).append(layer)
        if any(_behind(graph, each) for each in graph.consumers.get(layer.output[0], ())):
            between.append(layer)
    only = f', {len(alone)} quantized weights alone' if alone else ''
    floats = f'; in float: {_some(map(title, neither))}' if neither else ''
    found = [
        f'Q/DQ: {len(both)} of {len(graph.layers)} convolutions and matrix products read '
        f'quantized inputs and weights{only}{floats}'
    ]
    for what, nodes, change in (
        (
            'weights without Q/DQ',
            weights,
            'Export with a quantizer for each weight; these layers compute in float',
        ),
        ('inputs without Q/DQ', inputs, 'Quantize the input of each layer with quantized weights'),
        (
            'Q/DQ between a layer and its normalization or activation',
            between,
            'Quantize behind the activation, so that it is fused into the layer',
        ),
        (
            'residual branches without Q/DQ',
            [each for each in model.graph.node if _breaks_fusion(graph, each)],
            'Quantize the other input of Add, too, so that it is fused into the layer',
        ),
    ):
        if nodes:
            found.append(f'{what}: {_some(map(title, nodes))}. {change}')
    return found


def _behind(graph: _Graph, quantize: Any) -> bool:
    """Return whether a Q, and its DQ, stand before something that is fused into a layer."""
    pairs = graph.consumers.get(quantize.output[0], ()) if quantize.op_type == _Q else ()
    return any(
        reader.op_type in _FUSED
        for pair in pairs
        for reader in graph.consumers.get(pair.output[0], ())
    )


def _breaks_fusion(graph: _Graph, node: Any) -> bool:
    """Return whether an Add of a quantized layer, that is quantized again, has a float input."""
    near = graph.consumers.get(node.output[0], []) if node.op_type == 'Add' else []
    readers = [*near, *(deep for each in near for deep in graph.consumers.get(each.output[0], ()))]
    if not any(each.op_type == _Q for each in readers):
        return False
    sources = [graph.source(name, {*_SEEN_THROUGH, 'BatchNormalization'}) for name in node.input]
    of_layer = [
        each is not None and each.op_type in HEAVY and graph.is_quantized(each.input[0])
        for each in sources
    ]
    others = [name for name, is_layer in zip(node.input, of_layer) if not is_layer]
    return any(of_layer) and any(
        name not in graph.constants and not graph.is_quantized(name) for name in others
    )


#: In kind and name of a layer; those of tensorrt_rtx are from the logs of builds with 1.5.
_PRODUCT = re.compile(r'conv|correlation|gemm|mat(rix)?_?mul|mha|einsum', re.IGNORECASE)
_SOFTMAX = re.compile(r'softmax|Max\w*Sub\w*Exp\w*Sum', re.IGNORECASE)
_REFORMAT = re.compile(r'reformat|__myl_Move(Conc)?_', re.IGNORECASE)
_ATTENTION = re.compile(r'mha|flash|attention', re.IGNORECASE)
_QUANTIZING = re.compile(r'^[^+]*quantize(linear)?[^+]*$', re.IGNORECASE)


def advise_on_layers(
    layers: Sequence[EngineLayer],
    precision: str = 'auto',
    times: Mapping[str, float] = MappingProxyType({}),
    *,
    is_fused: bool = True,
) -> list[str]:
    """
    Return lines on the layers of an engine, each with the change to export or build.

    :param is_fused: whether they are the engine's own; of the network's, only types are judged.
    """
    texts = [f'{each.kind} {each.name} {each.tactic}' for each in layers]
    products = [bool(_PRODUCT.search(text)) for text in texts]
    split = [
        each
        for i, each in enumerate(layers)
        if _SOFTMAX.search(texts[i])
        and not _ATTENTION.search(texts[i])
        and any(products[max(i - 3, 0) : i])
        and any(products[i + 1 : i + 4])
    ]
    floats = [
        each
        for each, is_product in zip(layers, products)
        # A product of lower inputs may return float32.
        if is_product and each.dtype == 'float32' and each.input_dtype in ('', 'float32')
    ]
    is_lowered = any(each.dtype in ('float16', 'bfloat16') for each in layers)
    mixed, tf32 = (floats, []) if is_lowered else ([], floats if precision != 'fp32' else [])
    found, total = [], sum(times.values())
    for is_known, what, which, change in (
        (
            is_fused,
            'reformat layers',
            [each for each in layers if _REFORMAT.search(f'{each.kind} {each.name}')],
            'Use one type throughout (--io-dtypes lower), and no transposes at the inputs',
        ),
        (
            is_fused,
            'Q/DQ layers that were not fused',
            [each for each in layers if _QUANTIZING.search(each.name) or each.kind == 'QUANTIZE'],
            'Move Q/DQ to the inputs of convolutions and matrix products: inspect MODEL.onnx',
        ),
        (
            is_fused,
            'attention that is not fused',
            split,
            'Build it with --precision fp16 or bf16, without Q/DQ inside: inspect MODEL.onnx',
        ),
        (
            True,
            'convolutions and matrix products in float32 beside lower ones',
            mixed,
            'Leave out --fp32 for them, or export their weights in the lower type',
        ),
        (
            True,
            'convolutions and matrix products in TF32',
            tf32,
            'Build them with --precision fp16 or bf16, which is faster',
        ),
    ):
        if which and is_known:
            names = [each.name for each in which]
            percent = 100 * sum(times.get(name, 0.0) for name in names) / (total or 1.0)
            share = f', {percent:.0f} % of the time' if total else ''
            found.append(f'{what}: {_some(names, len(layers))}{share}. {change}')
    return found


def _some(all_names: Iterable[str], total: int = 0) -> str:
    names = list(all_names)
    of_all = f' of {total}' if total else ''
    return f'{len(names)}{of_all} ({", ".join(names[:3])}{", .." if len(names) > 3 else ""})'
