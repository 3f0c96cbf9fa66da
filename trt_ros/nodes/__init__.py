"""Nodes; each is a module of this package, an executable and a component."""

from collections.abc import Mapping

#: Class of each node by module. `tools/generated_files.py` writes the files that follow from it.
NODES: Mapping[str, str] = {
    'classifier': 'ClassifierNode',
    'depth': 'DepthNode',
    'detections_3d': 'Detections3DNode',
    'detector': 'DetectorNode',
    'enhancer': 'EnhancerNode',
    'image_source': 'ImageSourceNode',
    'overlay': 'OverlayNode',
    'policy': 'PolicyNode',
    'pose': 'PoseNode',
    'segmenter': 'SegmenterNode',
    'tensor': 'TensorNode',
    'tracker': 'TrackerNode',
}
