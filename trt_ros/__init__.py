"""
Neural networks with TensorRT, for ROS 2 and Python.

Pipeline, Frame and Thresholds are imported at their first use: `import trt_ros` needs no NumPy.
"""

TYPE_CHECKING = False  # True for type checkers; typing's own would have to be imported.
if TYPE_CHECKING:
    from trt_ros.runtime.pipeline import Pipeline as Pipeline
    from trt_ros.vision.frame import Frame as Frame
    from trt_ros.vision.thresholds import Thresholds as Thresholds

_MODULES = {
    'Frame': 'trt_ros.vision.frame',
    'Pipeline': 'trt_ros.runtime.pipeline',
    'Thresholds': 'trt_ros.vision.thresholds',
}


def __getattr__(name: str) -> object:
    """Import a public name."""
    if name not in _MODULES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the module's names, with those not imported yet."""
    return sorted({*globals(), *_MODULES})
