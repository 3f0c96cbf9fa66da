"""A verb of the command line, called in this process."""

import pytest

from trt_ros.cli import main
from trt_ros.runtime.backends import BACKENDS


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'xdg'))
    return tmp_path / 'xdg' / 'trt_ros'


@pytest.fixture
def engine_is(monkeypatch, use_backend):
    """Run a network, or with None the one asked for, in place of an engine of TensorRT."""
    from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
    import trt_ros.runtime.gpu.measure  # noqa: F401  Has the name of the real function for good.

    def use(network, open_runner=OnnxRuntimeRunner.open):
        use_backend(BACKENDS[0])
        monkeypatch.setattr(
            'trt_ros.runtime.gpu.open.open_tensor_runner',
            lambda path, *_, **__: open_runner(network or path),
        )

    return use


@pytest.fixture
def call(capsys):
    """Run a verb; give its exit code, stdout and stderr."""

    def run(*argv):
        code = main([str(each) for each in argv])
        return code, *capsys.readouterr()

    return run
