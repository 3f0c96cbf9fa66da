"""Networks that differ in their weights alone, and the engine that takes them."""

import numpy as np
from onnx import helper, numpy_helper
import pytest

from support.save_network import parse_network
from trt_ros.engine.builder.refit import structure
from trt_ros.engine.cache import EngineCache
from trt_ros.engine.key import cache_key
from trt_ros.engine.options import BuildOptions
from trt_ros.engine.sidecar import read_sidecar
from trt_ros.errors import ParameterError


def resized(weight=1.0, scale=2.0, mode='nearest', metadata=None):
    return parse_network(
        f"""(float[1,4] x) => (float[1,8] y)
        {{ a = Mul(x, w) y = Resize <mode = "{mode}"> (a, , scales) }}""",
        constants={'w': [weight] * 4, 'scales': [1.0, scale]},
        metadata=metadata,
    )


def test_weights_and_metadata_are_no_part_of_the_structure_and_outputs_no_weights():
    digest, weights = structure(resized())
    assert weights == {'w'}  # TensorRT reads scales when it parses the network.
    assert structure(resized(weight=3.0, metadata={'names': 'a'})).digest == digest
    others = {'scale': 3.0}, {'mode': 'linear'}
    assert all(structure(resized(**other)).digest != digest for other in others)
    model = resized()
    model.graph.output.append(helper.make_tensor_value_info('w', 1, (4,)))
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1]), 'unused'))
    assert not structure(model).weights


@pytest.mark.slow
def test_the_engine_to_refit_differs_in_the_model_alone(tmp_path, built_cache, models, rtx):
    cache = EngineCache(built_cache)
    (engine,) = cache.entries()
    folder, built = engine.parents[1], read_sidecar(engine)

    def found(**options):
        return cache._refittable(
            folder, lambda file: cache_key(file, BuildOptions(**options), rtx, 0)
        )

    assert found() == {'path': str(engine), 'structure': built['structure']}
    assert found(precision='fp16') is None


@pytest.mark.parametrize('option', ['refit', 'strip_weights'])
def test_rtx_without_a_gpu_of_its_targets_refuses(models, rtx, no_gpu, option):
    path = models.conv()
    with pytest.raises(ParameterError, match=rf'cannot apply {option} = True.\n.*only on a GPU'):
        EngineCache(models.folder / 'cache').get_or_build(
            path, BuildOptions(**{option: True}), rtx
        )
