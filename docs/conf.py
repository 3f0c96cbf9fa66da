"""Sphinx configuration of the documentation site, for `./dev docs` and rosdoc2."""

from pathlib import Path
import re
import sys

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

project = 'trt_ros'
author = 'trt_ros contributors'
copyright = f'2026, {author}'
release = re.search(r'<version>(.*)</version>', (CHECKOUT / 'package.xml').read_text()).group(1)

extensions = ['myst_parser', 'sphinx.ext.autodoc']
exclude_patterns = ['_build', 'generated/modules.rst']
suppress_warnings = ['ref.python']  # Dataclass fields of one name in several classes.
nitpicky = False

myst_enable_extensions = ['colon_fence', 'deflist']
myst_heading_anchors = 4

autodoc_typehints = 'none'  # Docstrings state shapes and dtypes.
autodoc_member_order = 'bysource'
autodoc_mock_imports = ['cuda', 'launch_ros', 'modelopt', 'pynvml', 'tensorrt', 'torch']

html_theme = 'furo'
html_title = f'trt_ros {release}'


def setup(app):
    """Generate one page per module from its docstrings."""
    from sphinx.ext import apidoc

    app.connect(
        'builder-inited',
        lambda app: apidoc.main(
            [
                '-q',
                '--force',
                '--remove-old',
                '--no-toc',
                '--module-first',
                '--maxdepth',
                '2',
                '--output-dir',
                str(CHECKOUT / 'docs/generated'),
                str(CHECKOUT / 'trt_ros'),
                str(CHECKOUT / 'trt_ros/demo'),
                str(CHECKOUT / 'trt_ros/launching'),
            ]
        ),
    )
