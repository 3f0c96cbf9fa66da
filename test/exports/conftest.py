"""Real exporters, as tools: tests here are skipped where they are not installed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder: slow, and other packages may warn."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.filterwarnings('ignore', 'error:::trt_ros'))


@pytest.fixture(scope='session')
def torch() -> Any:
    """
    Torch with its ONNX exporter, quiet and repeatable.

    To run these tests: pip install torch transformers onnxscript, all from PyPI, CPU is enough.
    """
    pytest.importorskip('onnxscript', reason='torch exports ONNX with it: pip install onnxscript')
    torch = pytest.importorskip('torch', reason='its exporter is under test: pip install torch')
    return torch


@pytest.fixture(scope='session')
def transformers(torch):
    try:
        import torchvision  # noqa: F401
    except ImportError:
        pass  # It is not needed.
    except RuntimeError as error:
        pytest.skip(f'transformers takes no torchvision that does not fit torch: {error}')
    return pytest.importorskip('transformers', reason='it builds the networks: pip install it')


@pytest.fixture
def ultralytics(torch, tmp_path, monkeypatch):
    """
    Give the package, told to write nowhere else and to download nothing.

    pip install --no-deps ultralytics torchvision: it wants torchvision's version, not itself.
    """
    for name, value in (
        ('YOLO_CONFIG_DIR', str(tmp_path)),
        ('YOLO_OFFLINE', 'true'),
        ('YOLO_AUTOINSTALL', 'false'),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return pytest.importorskip('ultralytics', reason='its exporter is under test')


@pytest.fixture
def export(torch, tmp_path) -> Callable[..., Path]:
    """
    Write a module as ONNX: export(module, inputs, input_names, output_names, forward).

    With `forward`, what this function returns of the module and its inputs.
    """

    class Part(torch.nn.Module):
        def __init__(self, module: Any, compute: Callable[..., Any]) -> None:
            super().__init__()
            self.module, self.compute = module, compute

        def forward(self, *inputs: Any) -> Any:
            return self.compute(self.module, *inputs)

    def write(
        module: Any,
        inputs: tuple[Any, ...],
        input_names: list[str],
        output_names: list[str],
        forward: Callable[..., Any] | None = None,
    ) -> Path:
        path = tmp_path / 'model.onnx'
        module = Part(module, forward) if forward else module
        names = {'input_names': input_names, 'output_names': output_names}
        torch.onnx.export(
            module.eval(), inputs, str(path), dynamo=False, opset_version=17, **names
        )
        return path

    return write


@pytest.fixture
def opened() -> Iterator[Callable[..., Any]]:
    """Open an export on the CPU until the test ends: opened(path, family, families, **options)."""
    with ExitStack() as stack:

        def open_one(path: Any, family: str, families: Any = None, **options: Any) -> Any:
            pipeline = stack.enter_context(
                Pipeline.open(path, families=families, backend='onnxruntime', **options)
            )
            assert pipeline.decoder.name == family
            return pipeline

        yield open_one


@pytest.fixture
def outputs_of(torch) -> Callable[..., dict[str, Any]]:
    """Run an export alone on what a pipeline shows it: outputs_of(path, pipeline, frame)."""

    def run(path: Any, pipeline: Any, frame: Frame) -> dict[str, Any]:
        with closing(OnnxRuntimeRunner.open(path)) as runner:
            found = runner.infer({runner.inputs[0].name: pipeline.preprocess(frame)[0]})
            return {name: torch.from_numpy(value.copy()) for name, value in found.items()}

    return run


@pytest.fixture
def settle(torch) -> Callable[[Any, Callable[[], Any]], None]:
    """Give an untrained network's normalizations the statistics of `run()`; else it says 0."""

    def adjust(model: Any, run: Callable[[], Any]) -> None:
        model.eval()
        for layer in model.modules():
            if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
                layer.momentum = 1.0
                layer.train()
        with torch.no_grad():
            run()
        model.eval()

    return adjust


@pytest.fixture
def spread(torch) -> Callable[..., None]:
    """
    Make an untrained layer's outputs differ from place to place: spread(layer, run, mean, std).

    Each of its channels gets this mean and deviation over what it says in `run()`.
    """

    def adjust(layer: Any, run: Callable[[], Any], mean: float, std: float) -> None:
        seen: list[Any] = []
        hook = layer.register_forward_hook(lambda module, inputs, output: seen.append(output))
        with torch.no_grad():
            run()
            hook.remove()
            channels = torch.cat(
                [each.movedim(1 if each.ndim == 4 else -1, 0).flatten(1) for each in seen], dim=1
            )
            gain = std / channels.std(dim=1).clamp(min=1e-30)
            layer.weight.mul_(gain.reshape(-1, *[1] * (layer.weight.ndim - 1)))
            layer.bias.copy_((layer.bias - channels.mean(dim=1)) * gain + mean)

    return adjust


@pytest.fixture
def picture() -> Frame:
    """Smooth colors with hard edges, wider than high."""
    rows, columns = np.mgrid[:180, :320]
    board = (columns // 40 + rows // 40) % 2
    pixels = np.stack([columns * 255 / 319, rows * 255 / 179, board * 255], axis=-1)
    pixels = pixels.astype(np.uint8)
    return Frame.from_pixels(pixels, 'rgb8')


@pytest.fixture
def assert_same() -> Callable[..., None]:
    """
    Hold detections against (boxes, scores, labels): 0.5 px, 1e-3, the same labels.

    Exporters keep boxes beside the image as empty ones.
    """

    def check(
        found: Any, boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, classes: int = 2
    ) -> None:
        inside = (boxes[:, :2] < boxes[:, 2:]).all(axis=1)
        boxes, scores, labels = boxes[inside], scores[inside], labels[inside]
        assert len(found) == len(scores) > 2
        assert len(set(found.labels.tolist())) >= min(classes, 2)
        assert found.scores.max() - found.scores.min() > 0.05
        assert (np.diff(found.scores) <= 0).all()
        # Class by class: where another library computed it, almost equal scores change places.
        mine, own = np.lexsort((-found.scores, found.labels)), np.lexsort((-scores, labels))
        assert found.labels[mine].tolist() == labels[own].tolist()
        np.testing.assert_allclose(found.scores[mine], scores[own], atol=1e-3)
        np.testing.assert_allclose(found.xyxy[mine], boxes[own], atol=0.5)

    return check
