"""
Sidecar for an engine of another tool, such as trtexec or Torch-TensorRT.

Where the engine can run, its tensors and results are compared with those of an ONNX file.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
import struct
import sys
from typing import TYPE_CHECKING, Any

from trt_ros.cli._flags import MIN_COSINE, add_flags, add_option_flags, model_argument
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import ModelError, ParameterError, TensorMismatchError, printable
from trt_ros.regular_file import sha256_of_file, writing

if TYPE_CHECKING:
    from trt_ros.tensors import TensorSpec

RUNS = 3


def add_arguments(parser: ArgumentParser) -> None:
    add_flags(
        parser,
        ('model engine', model_argument, None, 'engine to write the sidecar of'),
        ('--onnx', Path, ..., 'ONNX file of the same network'),
    )
    add_option_flags(parser, ('device',))
    add_flags(parser, MIN_COSINE, ('--force', 'replace a sidecar'))


def run(args: Namespace) -> int:
    """Compare, write the sidecar and print its path."""
    from datetime import datetime, timezone

    from trt_ros.driver import nvidia_driver
    from trt_ros.engine.builder.onnx_check import read_network
    from trt_ros.engine.files import check_trusted
    from trt_ros.engine.key import OnnxFile
    from trt_ros.engine.plan import read_plan_header
    from trt_ros.engine.sidecar import sidecar_path, write_sidecar

    engine, onnx, path = args.model, args.onnx, sidecar_path(args.model)
    header = read_plan_header(engine)
    if path.exists() and not args.force:
        raise ParameterError(f'{path} exists already.', remedy='Add --force to replace it.')
    check_trusted(engine)
    inputs, outputs, metadata = read_network(onnx)
    profiles: list[list[dict[str, Any]]] = []
    is_compared = not nvidia_driver().problem
    if not is_compared:
        if args.device or args.min_cosine != MIN_COSINE[2]:
            raise ParameterError(
                '--device and --min-cosine are for a comparison, which is not possible.',
                cause=nvidia_driver().problem,
                remedy='Leave them out, or run this on the machine of the engine.',
            )
        _refuse_other_names(engine, onnx, (*inputs, *outputs))
        print(f'not compared with {onnx}: {nvidia_driver().problem}', file=sys.stderr)
    else:
        path.unlink(missing_ok=True)  # It may be of another engine.
        inputs, outputs, profiles = _compare(args, (*inputs, *outputs))
    sidecar = {
        'library': header.library,
        'tensorrt': header.version_text,
        'plan_sha256': sha256_of_file(engine),
        'plan_nbytes': engine.stat().st_size,
        'built_at': datetime.now(timezone.utc).isoformat(timespec='seconds'),
        'onnx': OnnxFile.read(onnx).description(),
        'options': asdict(BuildOptions()),
        'inputs': [vars(spec) for spec in inputs],
        'outputs': [vars(spec) for spec in outputs],
        'profiles': profiles,
        'metadata': metadata,
        'compared': is_compared,
    }
    with writing(path, 'Move the engine to a writable folder.'):
        write_sidecar(engine, sidecar)
    print(path)
    return 0


def _refuse_other_names(engine: Path, onnx: Path, wanted: Sequence[TensorSpec]) -> None:
    """Raise TensorMismatchError if a name is not in an engine that cannot be loaded here."""
    from trt_ros.engine.engine import SAME_NAMES

    plan, missing = engine.read_bytes(), list[str]()
    for spec in wanted:
        name = spec.name.encode()  # With its length before it, at least in tensorrt_rtx 1.5.
        if struct.pack('<Q', len(name)) + name not in plan:
            missing.append(spec.name)
    if missing:
        raise TensorMismatchError(
            f'{engine} has other inputs or outputs than {onnx}.',
            cause=f'It does not contain the names {", ".join(missing)}.',
            remedy=SAME_NAMES,
        )


def _compare(
    args: Namespace, wanted: Sequence[TensorSpec]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...], list[list[dict[str, Any]]]]:
    """Return inputs, outputs and profiles of the engine, which agree with the ONNX file."""
    import numpy as np

    from trt_ros.engine.engine import refuse_other_tensors
    from trt_ros.runtime.agreement import agreements
    from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
    from trt_ros.runtime.gpu.open import open_tensor_runner

    rng = np.random.default_rng(0)
    with (
        closing(open_tensor_runner(args.model, device=args.device)) as ours,
        closing(OnnxRuntimeRunner.open(args.onnx)) as reference,
    ):
        refuse_other_tensors(args.model, (*ours.inputs, *ours.outputs), args.onnx, wanted)
        best = {name: shapes[1] for each in ours.engine.profiles for name, shapes in each.items()}
        for _ in range(RUNS):
            tensors = {
                spec.name: rng.random(best.get(spec.name, spec.shape)) for spec in ours.inputs
            }
            want, got = (
                network.infer(
                    {spec.name: tensors[spec.name].astype(spec.dtype) for spec in network.inputs}
                )
                for network in (reference, ours)
            )
            for name, each in agreements(got, want).items():
                problem = each.problem(args.min_cosine)
                print(printable(f'{name}: {problem or f"cosine {each.cosine:.6f}"}'))
                if problem:
                    raise ModelError(
                        f'{args.model} does not compute what {args.onnx} does.',
                        cause=f'{name}: {problem}',
                        remedy='Give the ONNX file that the engine was built from.',
                    )
        ranges = [
            [
                {'name': name, 'low': low, 'best': middle, 'high': high}
                for name, (low, middle, high) in profile.items()
            ]
            for profile in ours.engine.profiles
        ]
        return ours.inputs, ours.outputs, ranges
