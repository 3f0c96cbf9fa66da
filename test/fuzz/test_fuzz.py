"""
A few dozen of the nastiest model files; all of them: `python test/fuzz/run.py`.

Those that only hang, until the time limit, are left to that.
"""

import pytest

from fuzz import models, run

NASTIEST = {
    'node': (
        'attributes_conv_strides_0',
        'attributes_conv_pads_0',
        'attributes_MaxPool_0',
        'attributes_integer_division_0',
        'memory_constant_of_shape_33',
        'memory_expand_36',
        'memory_range_33',
        'memory_concat_folded_30',
        'memory_concat_run_34',
        'memory_matmul_100000',
        'control_function_itself',
        'control_function_each_other',
        'control_nested_ifs_3',
        'control_loop_that_doubles',
        'shapes_image_4',
        'shapes_imgsz_2',
        'shapes_names_0',
        'damaged_tensors_tensor_type_99',
        'damaged_tensors_external_2',
        'bytes_not_utf8_0',
        'bytes_nested',
    ),
    'inspect': (
        'control_function_itself',
        'control_function_bomb_10_4',
        'control_nested_ifs_3',
        'damaged_tensors_tensor_short_raw',
        'damaged_tensors_tensor_type_99',
        'damaged_tensors_constant_int64_misshapen',
        'shapes_names_0',
        'bytes_not_utf8_0',
    ),
    'build': (
        'attributes_conv_strides_0',
        'memory_constant_of_shape_36',
        'memory_concat_folded_34',
        'control_function_itself',
        'shapes_image_4',
        'damaged_tensors_tensor_huge_dims',
    ),
}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize('path', NASTIEST)
def test_malicious_models_end_as_errors_or_succeed(tmp_path, path):
    if path == 'build':
        pytest.importorskip('tensorrt_rtx')
    files = models.write(tmp_path, NASTIEST[path].__contains__)
    assert {file.stem for file in files} == set(NASTIEST[path])
    lines = []
    counts = run.run(files, [path], jobs=2, show=lines.append)
    bad = [line for line in lines if line.split()[0] not in run.GOOD]
    assert bad == [] and sum(counts.values()) == len(files)
    print(dict(counts))
