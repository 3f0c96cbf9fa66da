"""`python -m trt_ros.nodes`: writes what is written about parameters, from the parameters."""

from __future__ import annotations

from pathlib import Path

from trt_ros.nodes.classifier import ClassifierParameters
from trt_ros.nodes.depth import DepthParameters
from trt_ros.nodes.detector import DetectorParameters
from trt_ros.nodes.image_source import ImageSourceParameters
from trt_ros.nodes.overlay import OverlayParameters
from trt_ros.nodes.pose import PoseParameters
from trt_ros.nodes.segmenter import SegmenterParameters
from trt_ros.nodes.tensor import TensorParameters
from trt_ros.ros.parameters import markdown_table, yaml_text

PARAMETERS = {
    'classifier': ClassifierParameters,
    'depth': DepthParameters,
    'detector': DetectorParameters,
    'image_source': ImageSourceParameters,
    'overlay': OverlayParameters,
    'pose': PoseParameters,
    'segmenter': SegmenterParameters,
    'tensor': TensorParameters,
}
IN_README = ('detector',)
CHECKOUT = Path(__file__).parents[2]


def with_table(text: str, name: str) -> str:
    """
    Put a node's table between its markers, <!-- parameters:NAME --> and <!-- /parameters:NAME -->.

    :raises ValueError: when the markers are missing.
    """
    begin, end = f'<!-- parameters:{name} -->\n', f'<!-- /parameters:{name} -->'
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f'There is no {begin.strip()} ... {end}.')
    return before + begin + markdown_table(PARAMETERS[name]) + end + after


def page() -> str:
    """Write docs/parameters.md."""
    tables = [f'## {name}\n{markdown_table(cls)}' for name, cls in PARAMETERS.items()]
    return '\n'.join(
        [
            '# Parameters\nWritten by `python -m trt_ros.nodes` from the classes that '
            'declare them. ● changes while the node is active.\n',
            *tables,
        ]
    )


def main() -> None:
    for name, cls in PARAMETERS.items():
        (CHECKOUT / 'config' / f'{name}.yaml').write_text(yaml_text(cls, name))
    (CHECKOUT / 'docs' / 'parameters.md').write_text(page())
    readme = CHECKOUT / 'README.md'
    text = readme.read_text()
    for name in IN_README:
        text = with_table(text, name)
    readme.write_text(text)


if __name__ == '__main__':
    main()
