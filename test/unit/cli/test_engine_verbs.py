"""`trt-ros build`, `inspect` and `cache`, and the same as `ros2 trt`."""

from argparse import ArgumentParser
import json
from pathlib import Path
import re
import shlex
import shutil

import onnx
import pytest

from support.scripts import run_script
from trt_ros.cli import main
from trt_ros.cli._ros2 import TrtCommand
from trt_ros.cli.build import build_options
from trt_ros.engine.open import build_command
from trt_ros.engine.options import BuildOptions, ShapeRange
from trt_ros.regular_file import Blob
from trt_ros.trt import installed

pytestmark = pytest.mark.slow

pytest.importorskip('onnx.parser')
needs_rtx = pytest.mark.skipif(not installed('tensorrt_rtx'), reason='tensorrt_rtx is missing')


@needs_rtx
def test_build_prints_the_path_of_the_engine_reuses_it_and_writes_a_log(
    call, cache, color_detector, tmp_path
):
    short, long, none = (tmp_path / f'{name}.log' for name in ('short', 'long', 'none'))
    build = ('build', color_detector(), '--precision', 'tf32', '--log')
    code, out, err = call(*build, short)
    path = Path(out.strip())
    assert code == 0 and 'not built yet' in err
    assert path.parent == cache / 'colors' / 'tf32' / 'bs1' and path.suffix == '.engine'
    assert '[INFO] ONNX IR version' in short.read_text()
    assert '[VERBOSE]' not in short.read_text()
    code, out, err = call(*build, none)
    assert (code, Path(out.strip())) == (0, path) and 'from the cache' in err
    assert 'nothing was built, so TensorRT logged nothing: add --force' in err
    assert none.read_text() == ''
    assert call(*build, long, '--verbose', '--force')[0] == 0
    assert re.search(r'\[VERBOSE\] .*fusion', long.read_text())
    code, _, err = call(*build, tmp_path / 'no' / 'build.log')
    assert code == 1 and 'build.log cannot be written.\nCause: No such file' in err


@needs_rtx
def test_build_prints_the_log_of_tensorrt_and_the_sidecar_and_more(color_detector, cache, capfd):
    assert main(['build', str(color_detector()), '--verbose', '--json']) == 0
    printed = capfd.readouterr()
    assert '[VERBOSE] ' in printed.err
    found = json.loads(printed.out)
    assert (found['built'], found['batch']) == (True, 1)
    assert found['metadata'] == {'names': "{0: 'red', 1: 'green', 2: 'blue'}"}


def test_flags_and_options_convert_both_ways(cache):
    parser = ArgumentParser()
    from trt_ros.cli import build

    build.add_arguments(parser)
    assert build_options(parser.parse_args(['x.onnx'])) == BuildOptions()
    options = build_options(
        parser.parse_args(
            shlex.split(
                'x.onnx --precision fp16 --io-dtypes lower --cut-nms --profile x=1x2:1x2:4x2,y=3 '
                '--profile x=8x2,y=3 --input-size 32x64 --workspace-mib 64 --optimization-level 2 '
                '--aux-streams 1 --no-timing-cache --dla-core 0 --plugin a.so --plugin b.so '
                '--version-compatible --hardware-compatible ampere_plus --compute-capability 8.6 '
                '--compute-capability 8.9 --avg-timing-iterations 4 --sparse --strip-weights '
                '--refit --weight-streaming-budget-mib 16'
            )
        )
    )
    assert options == BuildOptions(
        precision='fp16',
        io_dtypes='lower',
        cut_nms=True,
        profiles=(
            (ShapeRange('x', (1, 2), (1, 2), (4, 2)), ShapeRange('y', (3,), (3,), (3,))),
            (ShapeRange('x', (8, 2), (8, 2), (8, 2)), ShapeRange('y', (3,), (3,), (3,))),
        ),
        input_size=(32, 64),
        workspace_mib=64,
        optimization_level=2,
        avg_timing_iterations=4,
        sparse=True,
        aux_streams=1,
        timing_cache=False,
        dla_core=0,
        plugins=('a.so', 'b.so'),
        version_compatible=True,
        hardware_compatible='ampere_plus',
        compute_capabilities=('8.6', '8.9'),
        strip_weights=True,
        refit=True,
        weight_streaming_budget_mib=16,
    )
    assert BuildOptions.from_json(options.to_json()) == options
    kernels = {'editable_timing_cache': True, 'tactics': ['0xab=5', '0xcd=6']}
    assert build_command({'options': kernels}) == (
        'trt-ros build MODEL.onnx --editable-timing-cache --tactic 0xab=5 --tactic 0xcd=6'
    )
    fp32 = {'precision': 'fp16', 'fp32': ['/head/*', 'Pow']}
    assert build_command({'options': fp32}) == (
        "trt-ros build MODEL.onnx --precision fp16 --fp32 '/head/*' --fp32 Pow"
    )
    command = shlex.split(
        build_command({'onnx': {'path': 'a net.onnx'}, 'options': json.loads(options.to_json())})
    )
    assert command[:3] == ['trt-ros', 'build', 'a net.onnx']
    assert build_options(parser.parse_args(command[2:])) == options


@pytest.mark.parametrize('text', ['1x2:1x2:1x2', 'x=', 'x=1x', 'x=2:1:3', 'x=1:2', 'x=1:2:3:4'])
def test_invalid_profiles_are_usage_errors(call, text, capsys):
    with pytest.raises(SystemExit) as caught:
        call('build', 'x.onnx', '--profile', text)
    told = capsys.readouterr().err
    assert caught.value.code == 2 and 'argument --profile' in told and 'parse_' not in told


def test_inspect_shows_a_model_and_its_reading(call, color_detector):
    code, out, _ = call('inspect', color_detector(), '--layers')
    assert code == 0
    assert 'input images 1x3x64x64 float32' in out and '  ReduceMean 1' in out
    assert "metadata names: {0: 'red'" in out
    assert ' (by names and shapes: the network is not run)\n' in out
    assert 'decoder yolov8: ' in out and '\ninput 64x64 (fixed by the network), letterbox' in out
    text = call('inspect', color_detector(), '--json')[1]
    found = json.loads(text)
    assert (found['kind'], found['opset'], found['ops']['Cast']) == ('onnx', 17, 1)
    assert text.count('decoder yolov8: ') == 1


def test_inspect_shortens_metadata(call, tmp_path):
    from support.save_network import save_network

    long = {'character': '\n'.join('abcdefghij' * 700), 'names': str(['a' * 50] * 900)}
    model = save_network(
        tmp_path / 'long.onnx',
        'y = GlobalAveragePool(x)',
        {'x': (1, 3, 32, 32)},
        {'y': (1, 3, 1, 1)},
        metadata=long,
    )
    out = call('inspect', model)[1]
    assert len(out.splitlines()) < 25 and max(map(len, out.splitlines())) < 400
    assert 'metadata character: a\\nb\\nc' in out and '.. (13999 characters)' in out
    assert 'No decoder recognizes this network with 900 named classes.' in out
    assert json.loads(call('inspect', model, '--json')[1])['metadata'] == long


@needs_rtx
def test_inspect_shows_an_engine_without_a_gpu(call, cache, color_detector):
    engine = call('build', color_detector(shape=()), '--input-size', '32x64')[1].strip()
    code, out, _ = call('inspect', engine, '--layers')
    assert code == 0
    for line in (
        'engine of tensorrt_rtx',
        'input images 1x3x?x? float32',
        'profile: images 1x3x32x64 to 1x3x32x64',
        'layer precisions (network): ',
    ):
        assert line in out
    found = json.loads(call('inspect', engine, '--json')[1])
    assert (found['kind'], found['matches_sidecar']) == ('engine', True)
    assert f'{len(found["layers"])} layers of the network before fusion' in out
    assert 'kernels, formats and fused layers are unknown without loading the engine: ' in out
    Path(engine + '.json').unlink()
    assert 'no sidecar' in call('inspect', engine)[1]
    code, _, err = call('inspect', engine, '--layers')
    assert code == 1
    assert re.search(r'The layers of .* cannot be read.\nCause: .*\nRemedy: Run this on', err)


def test_inspect_reports_nms_cut_or_why_not(call, tmp_path):
    def inspect(boxes):
        model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
            g (float[1,9,4] boxes, float[1,2,9] scores) => (int64[n,3] chosen, {boxes})
            <int64[1] most = {{5}}> {{
                moved = Neg (boxes)
                chosen = NonMaxSuppression (boxes, scores, most) }}""")
        onnx.save(model, tmp_path / 'nms.onnx')
        return call('inspect', tmp_path / 'nms.onnx')[1]

    assert (
        'NonMaxSuppression (node chosen) is cut off and runs after the network: IoU 0, at most 5 '
        'per class'
    ) in inspect('float[1,9,4] boxes')
    refused = inspect('float[1,9,4] moved')
    assert 'NonMaxSuppression. NonMaxSuppression (node chosen) cannot be cut off' in refused
    assert 'The network has another output, moved, that does not depend on it.' in refused


@pytest.mark.parametrize(
    'place',
    [
        'kernels/decode-sm_90-0123.blob',
        '.timing/tensorrt10.9-GPU.timing',
        'net/fp16/bs1/net-0123.engine.GPU-580.runtime',
    ],
)
def test_damaged_files_beside_the_engines_are_named_and_pruned(place, call, cache):
    blob = Blob(cache / place)
    blob.path.parent.mkdir(parents=True)
    blob.save(b'content')
    assert call('cache', 'verify')[0] == 0
    blob.path.write_bytes(blob.path.read_bytes()[:-1])
    code, out, _ = call('cache', 'verify')
    assert code == 1 and f'{blob.path}: its SHA-256 differs' in out
    assert call('cache', 'prune', '--dry-run')[0] == 0 and blob.path.exists()
    (row,) = json.loads(call('cache', 'prune', '--json')[1])
    assert row['file'] == str(blob.path) and not blob.path.exists()
    assert call('cache', 'verify')[0] == 0


@needs_rtx
def test_the_cache_is_listed_verified_and_pruned(call, cache, color_detector):
    assert call('cache', 'list')[:2] == (0, f'0 engines, 0.0 MiB, in {cache}\n')
    assert json.loads(call('cache', 'list', '--json')[1]) == []
    good = Path(call('build', color_detector('good.onnx'))[1].strip())
    bad = cache / 'bad' / good.relative_to(cache / 'good')
    shutil.copytree(cache / 'good', cache / 'bad')
    assert call('cache', 'verify')[0] == 0
    bad.write_bytes(bad.read_bytes()[:-1])
    code, out, _ = call('cache', 'verify')
    assert code == 1 and f'{bad}: ' in out and 'is damaged' in out
    assert call('cache', 'prune', '--dry-run')[1].count('bad') and bad.exists()
    code, out, _ = call('cache', 'prune')
    assert code == 0 and not bad.exists() and not Path(f'{bad}.json').exists() and good.exists()
    (row,) = json.loads(call('cache', 'list', '--json')[1])
    assert (row['model'], row['batch'], row['installed'], row['problem']) == ('good', 1, True, '')
    call('cache', 'prune', '--all')
    assert not good.exists()


def test_ros2_trt_has_the_same_verbs(call, color_detector, capsys):
    """Called as ros2cli calls a command: made without arguments, given a parser, then main."""
    command = TrtCommand()
    parser = ArgumentParser('ros2 trt')
    command.add_arguments(parser, 'ros2 trt')
    args = parser.parse_args(['inspect', str(color_detector())])
    assert command.main(parser=parser, args=args) == 0
    assert 'input images' in capsys.readouterr().out
    args = parser.parse_args(['inspect', '/nowhere/x.onnx'])
    assert command.main(parser=parser, args=args) == 1


@needs_rtx
def test_an_interrupt_ends_a_build_with_130_and_no_child(color_detector, tmp_path):
    script = (
        'import sys, os, signal\n'
        # A parent in the background has it ignored.
        'signal.signal(signal.SIGINT, signal.default_int_handler)\n'
        'from trt_ros.cli import main, build\n'
        'class Bar(build.Bar):\n'
        '    def __call__(self, progress):\n'
        '        if progress.phase.startswith("parsing"):\n'
        '            os.kill(os.getpid(), signal.SIGINT)\n'
        'build.Bar = Bar\n'
        'code = main(["build", sys.argv[1]])\n'
        'children = open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read()\n'
        'print(code, repr(children))\n'
    )
    done = run_script(script, color_detector(), XDG_CACHE_HOME=str(tmp_path))
    assert done.stdout == "130 ''\n"
    assert 'Traceback' not in done.stderr
