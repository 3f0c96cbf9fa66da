"""
Engines on a GPU: do they answer as the CPU does, and how soon are they loaded.

    python benchmarks/gpu_engine.py build FOLDER [MODEL.onnx ..]     # anywhere, no GPU needed
    python benchmarks/gpu_engine.py run FOLDER [--json FILE]         # on the GPU

`build` makes engines of small models in every precision; `run` loads those very files and compares
each answer with ONNX Runtime's on the CPU, then times loading in fresh processes.
"""

import argparse
from collections.abc import Callable
from functools import partial
import hashlib
import json
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any

from gpu_models import resnet50
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import trt_ros
from trt_ros.cuda.device import open_gpu
from trt_ros.driver import nvidia_driver
from trt_ros.engine.cache import EngineCache, read_sidecar
from trt_ros.engine.open import open_engine
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import TrtRosError
from trt_ros.trt import load_trt

PRECISIONS = ('fp32', 'tf32', 'fp16', 'bf16')
ROUNDS = 5


def transformer(path: Path) -> None:
    """One block: attention and a layer norm, written out."""
    rng, width = np.random.default_rng(7), 128
    weights = {
        f'w{n}': rng.normal(0, width**-0.5, (width, width)).astype(np.float32) for n in 'qkvo'
    } | {'two': np.float32(2), 'eps': np.float32(1e-5)}
    node = helper.make_node
    nodes = [node('MatMul', ['tokens', f'w{n}'], [n]) for n in 'qkv'] + [
        node('Transpose', ['k'], ['kt'], perm=[0, 2, 1]),
        node('MatMul', ['q', 'kt'], ['s']),
        node('Softmax', ['s'], ['p'], axis=-1),
        node('MatMul', ['p', 'v'], ['a']),
        node('ReduceMean', ['a'], ['m'], axes=[-1]),
        node('Sub', ['a', 'm'], ['d']),
        node('Pow', ['d', 'two'], ['d2']),
        node('ReduceMean', ['d2'], ['var'], axes=[-1]),
        node('Add', ['var', 'eps'], ['vare']),
        node('Sqrt', ['vare'], ['std']),
        node('Div', ['d', 'std'], ['n']),
        node('MatMul', ['n', 'wo'], ['out']),
    ]
    graph = helper.make_graph(
        nodes,
        'transformer',
        [helper.make_tensor_value_info('tokens', TensorProto.FLOAT, (1, 64, width))],
        [helper.make_tensor_value_info('out', TensorProto.FLOAT, (1, 64, width))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), path
    )


def build(folder: Path, models: list[Path]) -> None:
    (folder / 'models').mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    transformer(folder / 'models' / 'transformer.onnx')
    shapes = Path(trt_ros.__file__).parent / 'demo' / 'shapes.onnx'
    for model in [*models, *([shapes] if shapes.exists() else [])]:
        shutil.copy(model, folder / 'models')
    library = load_trt()
    for model in sorted((folder / 'models').glob('*.onnx')):
        for precision in PRECISIONS:
            entry = EngineCache(folder / 'engines').get_or_build(
                model, BuildOptions(precision=precision), library
            )
            print(entry.path, f'{entry.sidecar["build_seconds"]:.1f} s')


def compare(engine: Path, onnx_path: Path, cache_dir: Path) -> dict[str, Any]:
    """Run one engine on random input; give the largest error over the largest value."""
    import onnxruntime

    from trt_ros.runtime.gpu.open import open_tensor_runner

    rng = np.random.default_rng(0)
    with_copy = cache_dir / engine.name  # A runtime cache appears beside it.
    shutil.copy(engine, with_copy)
    shutil.copy(f'{engine}.json', f'{with_copy}.json')
    began = time.perf_counter()
    runner = open_tensor_runner(with_copy)
    try:
        image = [len(spec.shape) == 4 for spec in runner.inputs]
        inputs = {
            spec.name: (
                rng.uniform(0, 255 if 'yolox' in engine.name else 1, spec.shape)
                if is_image
                else rng.normal(0, 1, spec.shape)
            ).astype(spec.dtype)
            for spec, is_image in zip(runner.inputs, image)
        }
        found = {name: np.array(value, np.float64) for name, value in runner.infer(inputs).items()}
        seconds = time.perf_counter() - began
    finally:
        runner.close()
    session = onnxruntime.InferenceSession(str(onnx_path), providers=['CPUExecutionProvider'])
    names = [output.name for output in session.get_outputs()]
    errors = {}
    for name, expected in zip(names, session.run(names, inputs)):
        difference = np.abs(found[name] - expected)
        errors[name] = {
            'max_relative_error': float(difference.max() / np.abs(expected).max()),
            'mean_relative_error': float(difference.mean() / np.abs(expected).mean()),
            'finite': bool(np.isfinite(found[name]).all()),
        }
    return {
        'outputs': errors,
        'first_answer_seconds': seconds,
        'built_with_gpu': read_sidecar(engine)['gpu'] is not None,
    }


def load_once(model: Path, cache_dir: Path, keep_kernels: bool) -> dict[str, float]:
    """Time, in this fresh process, from the call to the first answer."""
    from trt_ros.cuda.device import open_gpu
    from trt_ros.runtime.gpu.tensor_runner import TensorRTRunner

    began = time.perf_counter()
    opened = open_engine(model, BuildOptions(precision='fp16'), engine_cache_dir=cache_dir)
    loaded = time.perf_counter()
    cache = opened.runtime_cache if keep_kernels else None
    runner = TensorRTRunner(open_gpu(), opened.engine, cache=cache)
    inputs = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in runner.inputs}
    runner.infer(inputs)
    answered = time.perf_counter()
    if keep_kernels:
        runner.save_cache()
    runner.close()
    return {
        'load_seconds': loaded - began,
        'first_answer_seconds': answered - loaded,
        'total_seconds': answered - began,
    }


def load_times(folder: Path) -> dict[str, Any]:
    """Medians over fresh processes; the driver's own kernel cache is off."""
    model, cache_dir = folder / 'resnet50.onnx', folder / 'cache'
    resnet50(model)

    def once(kernels: str) -> dict[str, float]:
        done = subprocess.run(
            [sys.executable, __file__, 'load', str(model), str(cache_dir), kernels],
            capture_output=True,
            text=True,
            env={**os.environ, 'CUDA_CACHE_DISABLE': '1'},
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return result

    def median(runs: list[dict[str, float]]) -> dict[str, float]:
        return {key: float(np.median([one[key] for one in runs])) for key in runs[0]}

    first = once('forget')  # Builds.
    without = [once('forget') for _ in range(ROUNDS)]
    filling = once('keep')
    kept = [once('keep') for _ in range(ROUNDS)]
    (engine,) = EngineCache(cache_dir).entries()
    return {
        'model': 'resnet50 fp16, 1x3x224x224',
        'first_with_build': first,
        'warm_without_runtime_cache': median(without),
        'filling_the_runtime_cache': filling,
        'warm_with_runtime_cache': median(kept),
        'runtime_cache_files': {
            path.name: path.stat().st_size for path in engine.parent.glob('*.runtime')
        },
        'sidecar': {key: value for key, value in read_sidecar(engine).items() if key != 'layers'},
        'some_layers': read_sidecar(engine)['layers'][:5],
    }


class Checks:
    """
    What only a GPU can show.

    :param model: ONNX file of a transformer.
    """

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model, self.private = folder, model, folder / 'checks'
        self.private.mkdir(mode=0o700)
        (folder / 'file').touch()

    def opens(self, **options: Any) -> None:
        open_engine(
            self.model, BuildOptions(**options), engine_cache_dir=self.private
        ).engine.close()

    def in_memory(self) -> None:
        opened = open_engine(
            self.model, engine_cache_dir=self.folder / 'file' / 'x', memory_if_unwritable=True
        )
        opened.engine.close()
        assert opened.runtime_cache is None and opened.log_lines[0] == 'engine built in memory'

    def closed_twice(self) -> None:
        engine = open_engine(self.model, engine_cache_dir=self.private).engine
        engine.close()
        engine.close()

    def bad_body_is_rebuilt(self) -> None:
        """Open a plan that matches its sidecar, but that the library refuses."""
        opened = open_engine(self.model, engine_cache_dir=self.private)
        opened.engine.close()
        path = Path(opened.log_lines[0].split(' ')[1].rstrip(','))
        data = bytearray(path.read_bytes())
        data[64:4096] = bytes(4096 - 64)
        path.write_bytes(data)
        sidecar = json.loads(Path(f'{path}.json').read_text())
        sidecar['plan_sha256'] = hashlib.sha256(data).hexdigest()
        Path(f'{path}.json').write_text(json.dumps(sidecar))
        again = open_engine(self.model, engine_cache_dir=self.private)
        again.engine.close()
        assert 'built' in again.log_lines[0], again.log_lines

    def cut_plan_is_refused(self) -> None:
        path = next(EngineCache(self.private).entries())
        cut = self.folder / 'cut.engine'
        cut.write_bytes(path.read_bytes()[:-10])
        try:
            open_engine(cut)
        except TrtRosError as error:
            assert 'is damaged' in str(error)
        else:
            raise AssertionError('it was loaded')


def outcome(check: Callable[[], None]) -> str:
    """Return 'ok', or what went wrong."""
    try:
        check()
    except TrtRosError as error:
        return str(error)
    except Exception:
        return traceback.format_exc()[-1500:]
    return 'ok'


def checks(folder: Path) -> dict[str, str]:
    """Return the outcome of each check."""
    model = folder / 'transformer.onnx'
    transformer(model)
    each = Checks(folder, model)
    todo: dict[str, Callable[[], None]] = {
        'default': each.opens,
        'strip_weights': partial(each.opens, strip_weights=True),
        'weight_streaming': partial(each.opens, weight_streaming_budget_mib=1),
        'target_current': partial(each.opens, compute_capabilities=('current',)),
        'target_8_6': partial(each.opens, compute_capabilities=('8.6',)),
        'lowered_io': partial(each.opens, precision='fp16', io_dtypes='lower'),
        'in_memory': each.in_memory,
        'closed_twice': each.closed_twice,
        'bad_body_is_rebuilt': each.bad_body_is_rebuilt,
        'cut_plan_is_refused': each.cut_plan_is_refused,
    }
    return {name: outcome(check) for name, check in todo.items()}


def inspector_sample(folder: Path) -> str:
    """Output of this release's inspector for a first layer, verbatim."""
    model = folder / 'inspect.onnx'
    transformer(model)
    engine = open_engine(model, engine_cache_dir=folder / 'inspect').engine
    formats = engine.library.trt.LayerInformationFormat
    text = engine.handle.create_engine_inspector().get_engine_information(formats.JSON)
    engine.close()
    return str(text[:3000])


def run(folder: Path, json_path: Path | None) -> int:
    gpu = nvidia_driver().gpu(0)
    result: dict[str, Any] = {
        'gpu': gpu.name,
        'driver': nvidia_driver().version,
        'library': str(load_trt()),
        'precisions': {},
        'failed': {},
    }

    def step(name: str, work: Callable[[], Any]) -> None:
        try:
            result[name] = work()
        except Exception:
            result['failed'][name] = traceback.format_exc()[-2000:]
        if json_path is not None:  # After each, so that a crash leaves what was found.
            json_path.write_text(json.dumps(result, indent=1))

    with tempfile.TemporaryDirectory() as work_dir:
        work = Path(work_dir)
        cache = EngineCache(folder / 'engines')
        for engine in cache.entries():
            model, precision = engine.relative_to(cache.root).parts[:2]
            name = f'{model} {precision}'
            step(name, lambda e=engine, m=model: compare(e, folder / 'models' / f'{m}.onnx', work))
            if name in result:
                result['precisions'][name] = result.pop(name)
        step('load_times', lambda: load_times(work))
        with open_gpu(0).context:
            step('checks', lambda: checks(work))
            step('inspector', lambda: inspector_sample(work))
    print_tables(result)
    return 1 if result['failed'] else 0


def print_tables(result: dict[str, Any]) -> None:
    print(f'{result["gpu"]}, driver {result["driver"]}, {result["library"]}\n')
    print('| engine, built without a GPU | max relative error | mean |\n|---|---|---|')
    for name, found in result['precisions'].items():
        worst = max(found['outputs'].values(), key=lambda one: one['max_relative_error'])
        print(
            f'| {name} | {worst["max_relative_error"]:.2e} | {worst["mean_relative_error"]:.2e} |'
        )
    print()
    for name, found in result.get('load_times', {}).items():
        if isinstance(found, dict) and 'total_seconds' in found:
            print(
                f'{name}: load {found["load_seconds"]:.3f} s, '
                f'first answer {found["first_answer_seconds"]:.3f} s'
            )
    for kind in ('checks', 'failed'):
        for name, text in result.get(kind, {}).items():
            print(f'{kind} {name}: {text}')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    verbs = parser.add_subparsers(dest='verb', required=True)
    verb = verbs.add_parser('build')
    verb.add_argument('folder', type=Path)
    verb.add_argument('models', type=Path, nargs='*')
    verb = verbs.add_parser('run')
    verb.add_argument('folder', type=Path)
    verb.add_argument('--json', type=Path)
    verb = verbs.add_parser('load')
    verb.add_argument('model', type=Path)
    verb.add_argument('cache_dir', type=Path)
    verb.add_argument('kernels', choices=('keep', 'forget'))
    args = parser.parse_args()
    if args.verb == 'build':
        build(args.folder, args.models)
        return 0
    if args.verb == 'load':
        with open_gpu(0).context:
            print(json.dumps(load_once(args.model, args.cache_dir, args.kernels == 'keep')))
        return 0
    return run(args.folder, args.json)


if __name__ == '__main__':
    sys.exit(main())
