"""What runs the networks of nodes."""

import pytest

#: For a test of what does not depend on it, and takes seconds of a node's start and waiting.
ON_CPU = pytest.mark.parametrize('backend', ['onnxruntime'])
