"""Layers of an engine, from what TensorRT's inspectors report."""

from contextlib import nullcontext
from dataclasses import asdict
import json
from types import SimpleNamespace

import pytest

from trt_ros.engine.builder.layers import EngineLayer, counts, parse_inspector, read_engine
from trt_ros.errors import ModelError

# As TensorRT 10 reports a convolution built with ProfilingVerbosity.DETAILED.
CONVOLUTION = {
    'Name': 'conv + relu',
    'LayerType': 'CaskConvolution',
    'Inputs': [{'Name': 'x', 'Dimensions': [1, 3, 8, 8], 'Format/Datatype': 'Row major FP16'}],
    'Outputs': [
        {
            'Name': 'y',
            'Dimensions': [1, 16, 8, 8],
            'Format/Datatype': 'Channel major FP16 format where channel % 8 == 0',
        }
    ],
    'Kernel': [3, 3],
    'Weights': {'Type': 'Half', 'Count': 432},
    'Bias': {'Type': 'Float', 'Count': 16},
    'TacticName': 'sm80_xmma_fprop_implicit_gemm',
    'TacticValue': '0x11bde0e1d9f2f35d',
    'StreamId': 0,
}


def parse(*layers) -> list[EngineLayer]:
    return list(parse_inspector(json.dumps({'Layers': layers})))


def test_a_detailed_layer_has_type_format_kernel_and_memory():
    assert parse(CONVOLUTION) == [
        EngineLayer(
            'conv + relu',
            'CaskConvolution',
            'float16',
            (1, 16, 8, 8),
            'Channel major FP16 format where channel % 8 == 0',
            'sm80_xmma_fprop_implicit_gemm',
            output_nbytes=16 * 8 * 8 * 2,
            weights_nbytes=432 * 2 + 16 * 4,
            input_dtype='float16',
        )
    ]


def test_types_are_read_from_the_inspector_of_any_release():
    found = parse(
        {'Name': 'a', 'LayerType': 'conv', 'Outputs': [{'Format/Datatype': 'Row major FP16 x'}]},
        {'Name': 'b', 'LayerType': 'gemm', 'Outputs': [{'Datatype': 'BFloat16', 'Format': 'L'}]},
        {'Name': 'c', 'LayerType': 'mul', 'Outputs': [{'Format/Datatype': 'Half'}]},
        {'Name': 'd', 'LayerType': 'add', 'Outputs': [{'Format/Datatype': 'Row major Float'}]},
        {'Name': 'e', 'LayerType': 'no types', 'Outputs': [{'Name': 'half'}]},
        'only a name',
    )
    dtypes = ['float16', 'bfloat16', 'float16', 'float32', '', '']
    assert [layer.dtype for layer in found] == dtypes
    assert found[1].format == 'L'
    assert found[-1] == EngineLayer('only a name')
    assert counts(found) == {'float16': 2, 'bfloat16': 1, 'float32': 1}


@pytest.mark.parametrize(
    ('outputs', 'nbytes'),
    [
        ([{'Dimensions': [2, 3], 'Datatype': 'Float'}], 24),
        ([{'Dimensions': [], 'Datatype': 'Int64'}], 8),
        ([{'Dimensions': [5], 'Datatype': 'FP4'}], 3),
        (
            [{'Dimensions': [2], 'Datatype': 'Int8'}, {'Dimensions': [3], 'Datatype': 'Half'}],
            2 + 6,
        ),
        ([{'Dimensions': [-1, 3], 'Datatype': 'Float'}], None),
        ([{'Dimensions': [3], 'Datatype': 'Float'}, {'Dimensions': [3]}], None),
        ([], None),
    ],
)
def test_memory_of_outputs_is_the_sum_where_all_sizes_are_known(outputs, nbytes):
    assert parse({'Name': 'a', 'Outputs': outputs})[0].output_nbytes == nbytes


@pytest.mark.parametrize('text', ['', 'no JSON', '[]', '{}', '{"Layers": []}'])
def test_empty_inspector_output_gives_no_layers(text):
    assert list(parse_inspector(text)) == []


def test_layers_of_older_and_newer_sidecars_are_read():
    layer = parse(CONVOLUTION)[0]
    assert EngineLayer.read(json.loads(json.dumps(asdict(layer)))) == layer
    assert EngineLayer.read({**asdict(layer), 'something new': 1}) == layer
    assert EngineLayer.read(['a', 'CONVOLUTION', 'float16']) == EngineLayer(
        'a', 'CONVOLUTION', 'float16'
    )


def library(handle) -> SimpleNamespace:
    """A TensorRT that loads every plan as this ICudaEngine."""
    runtime = SimpleNamespace(deserialize_cuda_engine=lambda plan: handle)
    trt = SimpleNamespace(
        LayerInformationFormat=SimpleNamespace(JSON=1),
        EngineStat=SimpleNamespace(TOTAL_WEIGHTS_SIZE=0),
    )
    log = SimpleNamespace(collect=lambda: nullcontext(SimpleNamespace(errors=['other GPU'])))
    return SimpleNamespace(new_runtime=lambda: runtime, log=log, trt=trt)


def engine(**more) -> SimpleNamespace:
    text = json.dumps({'Layers': [CONVOLUTION]})
    inspector = SimpleNamespace(get_engine_information=lambda _: text)
    return SimpleNamespace(
        create_engine_inspector=lambda: inspector,
        profiling_verbosity=SimpleNamespace(name='DETAILED'),
        **more,
    )


def test_an_engine_is_read_with_and_without_statistics_and_refused_of_another_gpu():
    new = engine(device_memory_size_v2=2000, get_engine_stat=lambda stat: 3000)
    found = read_engine(library(new), b'plan')
    assert found.layers == parse(CONVOLUTION)
    assert (found.verbosity, found.activations_nbytes) == ('DETAILED', 2000)
    assert found.weights_nbytes == 3000
    old = read_engine(library(engine(device_memory_size=1000)), b'plan')  # TensorRT 10.3
    assert (old.activations_nbytes, old.weights_nbytes) == (1000, None)
    with pytest.raises(ModelError, match=r'cannot be loaded on this machine\.\nCause: other GPU'):
        read_engine(library(None), b'plan')
