"""ONNX Runtime on the CPU, after a first load and run in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
import hashlib
from importlib.util import find_spec
import io
import json
import os
from pathlib import Path
import platform
from typing import Any

import numpy as np

from trt_ros.child import BUSY_FACTOR, Child, memory_limit
from trt_ros.engine.builder.model_file import check_model_file
from trt_ros.engine.cache import EngineCache
from trt_ros.engine.files import check_private, make_private
from trt_ros.engine.key import OnnxFile, total_nbytes
from trt_ros.engine.sidecar import tensors_of
from trt_ros.errors import ClosedError, ParameterError
from trt_ros.progress import Reporter
from trt_ros.regular_file import MAX_TEXT_NBYTES, read_regular, write_atomically
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner, load_onnxruntime
from trt_ros.runtime.runner import Runner, check_inputs
from trt_ros.tensors import Arrays, TensorSpec

BASE_SECONDS = 30.0  # Time limit of any model to load, and to run once.
NBYTES_PER_SECOND = 4 << 20  # A larger model may take longer.
BASE_NBYTES = 2 << 30
FACTOR_OF_MODEL, FACTOR_OF_INPUTS = 8, 256  # Memory limit in bytes per byte of model and inputs.


class CheckedRunner(Runner):
    """
    A Runner of an untrusted model, which may crash, hang or fill the memory.

    A child process loads the model and runs it once; only then does this process load it. Models
    that passed are recorded by content beside the engine cache, and are loaded here at once.
    """

    backend = 'onnxruntime'

    def __init__(
        self, path: Path, report: Reporter, record: PassedChecks, threads: int = 0
    ) -> None:
        self._path, self._report, self._record, self._threads = path, report, record, threads
        self._child: _CheckingChild | None = None
        self._runner: OnnxRuntimeRunner | None = None
        self._is_checked = self._is_closed = False
        self.inputs: tuple[TensorSpec, ...] = ()
        self.outputs: tuple[TensorSpec, ...] = ()
        self.metadata: Mapping[str, str] = {}

    @classmethod
    def open(
        cls,
        model_path: str | Path,
        *,
        threads: int = 0,
        report: Reporter | None = None,
        engine_cache_dir: str = '',
    ) -> CheckedRunner:
        """Check a model and load it, see `OnnxRuntimeRunner.open`; `report` can cancel."""
        path = Path(model_path).expanduser()
        check_model_file(path)
        runner = cls(path, report or Reporter(), PassedChecks(path, engine_cache_dir), threads)
        try:
            runner._open()
        except BaseException:
            runner.close()
            raise
        return runner

    def _open(self) -> None:
        self._report('loading the model')
        if self._record.passed:
            source: Any = self._load()
        else:
            self._child = _CheckingChild(self._path)
            load_onnxruntime()  # Takes as long as the child's start, beside which it happens.
            source = self._child.load(self._report)
        self.inputs, self.outputs, self.metadata = source.inputs, source.outputs, source.metadata

    def _load(self) -> OnnxRuntimeRunner:
        if self._runner is None:
            self._runner = OnnxRuntimeRunner.open(self._path, threads=self._threads)
        return self._runner

    def infer(self, tensors: Arrays) -> dict[str, np.ndarray]:
        """Run the network once, the first time also in the child process; see Runner.infer."""
        if not self._is_checked:
            self._check(tensors)
        assert self._runner is not None
        return self._runner.infer(tensors)

    def tune_threads(self, tensors: Arrays) -> tuple[str, ...]:
        assert self._runner is not None
        return self._runner.tune_threads(tensors)

    def _check(self, tensors: Arrays) -> None:
        if self._is_closed:
            raise ClosedError(f'The runner of {self._path}')
        check_inputs(self.inputs, tensors)
        shapes = ' '.join(f'{name}{list(tensors[name].shape)}' for name in sorted(tensors))
        if shapes not in self._record.passed:
            if self._child is None or not self._child.is_usable:
                self._close_child()
                self._child = _CheckingChild(self._path)
                self._child.load(self._report)
            self._child.run(tensors, self._report)
            self._record.add(shapes)
        self._close_child()
        self._load()
        self._is_checked = True

    def _close_child(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def close(self) -> None:
        self._is_closed = True
        self._close_child()
        if self._runner is not None:
            self._runner.close()


class _CheckingChild(Child):
    """A child process that loads a model once, then runs it."""

    def __init__(self, path: Path) -> None:
        self._path, self._nbytes = path, total_nbytes(path)
        self._tensors = os.fdopen(os.memfd_create('trt_ros tensors'), 'w+b')
        super().__init__(
            'trt_ros.runtime.cpu.checking_child:check_in_child',
            title=f'The check of {path}',
            remedy='Check that the model is complete and from a trusted source; export it again '
            'with another version of the exporter, or another opset.',
            memory_nbytes=0,
            pass_fds=[self._tensors.fileno()],
        )

    def load(self, report: Reporter) -> _CheckingChild:
        """Load the model in the child; sets `inputs`, `outputs` and `metadata`."""
        found = self._request(report, 'loading the model')
        self.inputs, self.outputs = tensors_of(found)
        self.metadata: Mapping[str, str] = found['metadata']
        return self

    def run(self, tensors: Arrays, report: Reporter) -> None:
        """Run the model in the child."""
        self._tensors.seek(0)
        self._tensors.truncate()
        np.savez(self._tensors, *tensors.values())
        self._tensors.flush()
        nbytes = sum(tensor.nbytes for tensor in tensors.values())
        given = {'tensors_fd': self._tensors.fileno(), 'names': list(tensors)}
        self._request(report, 'running the model once', nbytes, **given)

    def _request(
        self, report: Reporter, phase: str, inputs_nbytes: int = 0, **request: Any
    ) -> Any:
        nbytes = memory_limit(
            self._nbytes,
            factor=FACTOR_OF_MODEL,
            base_nbytes=BASE_NBYTES + FACTOR_OF_INPUTS * inputs_nbytes,
        )
        self.memory_nbytes = nbytes + (1 << 30)
        return self.call(
            {'path': str(self._path), 'memory_nbytes': nbytes, **request},
            report=report,
            phase=phase,
            timeout_seconds=BASE_SECONDS + self._nbytes / NBYTES_PER_SECOND,
            busy_factor=BUSY_FACTOR,
        )

    def close(self) -> None:
        super().close()
        self._tensors.close()


class PassedChecks:
    """A record of input shapes that passed the check here; empty where it cannot be kept."""

    def __init__(self, path: Path, engine_cache_dir: str) -> None:
        self.passed: set[str] = set()
        self._file: Path | None = None
        with suppress(ParameterError, OSError, ValueError):
            root = EngineCache(engine_cache_dir).root
            folder = root / '.checked'
            make_private(folder, root)
            model = OnnxFile.read(path)
            key = [1, model.sha256, model.external, *_installed_onnxruntime(), platform.machine()]
            name = hashlib.sha256(json.dumps(key).encode()).hexdigest()
            self._file = folder / f'{name}.json'
            check_private(self._file, root)
            self.passed = set(json.loads(read_regular(self._file, MAX_TEXT_NBYTES)))

    def add(self, shapes: str) -> None:
        """Record that the model ran with these shapes."""
        self.passed.add(shapes)
        if self._file is not None:
            with suppress(OSError):  # A full disk: the next start checks again.
                write_atomically(self._file, io.BytesIO(json.dumps(sorted(self.passed)).encode()))


def _installed_onnxruntime() -> tuple[str, int]:
    """Return path and modification time of ONNX Runtime, without importing it."""
    found = find_spec('onnxruntime')
    origin = found.origin if found and found.origin else ''
    return origin, Path(origin).stat().st_mtime_ns if origin else 0
