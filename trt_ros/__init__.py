"""
Neural networks with TensorRT, for ROS 2 and Python.

The public names are imported at their first use: `import trt_ros` needs no NumPy.
"""

TYPE_CHECKING = False  # True for type checkers; typing's own would have to be imported.
if TYPE_CHECKING:
    from trt_ros.drawing import draw as draw
    from trt_ros.errors import TrtRosError as TrtRosError
    from trt_ros.media import read_images as read_images
    from trt_ros.results.arrays import Depth as Depth
    from trt_ros.results.arrays import Tensors as Tensors
    from trt_ros.results.boxes import Detections as Detections
    from trt_ros.results.boxes import OrientedBoxes as OrientedBoxes
    from trt_ros.results.classes import Classification as Classification
    from trt_ros.results.masks import ClassMask as ClassMask
    from trt_ros.results.masks import ClassMasks as ClassMasks
    from trt_ros.results.masks import Instances as Instances
    from trt_ros.results.poses import Poses as Poses
    from trt_ros.runtime.pipeline import Pipeline as Pipeline
    from trt_ros.tracking.tracker import Tracker as Tracker
    from trt_ros.vision.device_frame import DeviceFrame as DeviceFrame
    from trt_ros.vision.frame import Frame as Frame
    from trt_ros.vision.thresholds import Thresholds as Thresholds

_MODULES = {
    'ClassMask': 'trt_ros.results.masks',
    'ClassMasks': 'trt_ros.results.masks',
    'Classification': 'trt_ros.results.classes',
    'Depth': 'trt_ros.results.arrays',
    'Detections': 'trt_ros.results.boxes',
    'DeviceFrame': 'trt_ros.vision.device_frame',
    'Frame': 'trt_ros.vision.frame',
    'Instances': 'trt_ros.results.masks',
    'OrientedBoxes': 'trt_ros.results.boxes',
    'Pipeline': 'trt_ros.runtime.pipeline',
    'Poses': 'trt_ros.results.poses',
    'Tensors': 'trt_ros.results.arrays',
    'Thresholds': 'trt_ros.vision.thresholds',
    'Tracker': 'trt_ros.tracking.tracker',
    'TrtRosError': 'trt_ros.errors',
    'draw': 'trt_ros.drawing',
    'read_images': 'trt_ros.media',
}
__all__ = [*_MODULES]


def __getattr__(name: str) -> object:
    """Import a public name."""
    if name not in _MODULES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the module's names, with those not imported yet."""
    return sorted({*globals(), *_MODULES})
