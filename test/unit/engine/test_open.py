"""What is said before and after an engine is opened; opening one needs a GPU."""

import json
import shutil

import pytest

from trt_ros.cli import main
from trt_ros.driver import GpuInfo
from trt_ros.engine.cache import EngineCache
from trt_ros.engine.open import (
    build_summary,
    diagnostics_of,
    ineffective_options,
    open_engine,
    open_plan,
)
from trt_ros.engine.options import BuildOptions, ShapeRange
from trt_ros.engine.sidecar import read_sidecar, sidecar_path
from trt_ros.errors import BackendError, ModelError, ParameterError

pytestmark = pytest.mark.slow


def test_no_engine_is_built_without_gpu(models, no_gpu, tmp_path):
    with pytest.raises(BackendError, match='No usable NVIDIA GPU found'):
        open_engine(models.conv(), engine_cache_dir=tmp_path / 'cache')
    assert not (tmp_path / 'cache').exists()


def test_the_diagnostics_get_the_key_of_the_files_name_and_the_real_precisions(built_cache):
    (path,) = EngineCache(built_cache).entries()
    assert diagnostics_of({}) == {}
    diagnostics = diagnostics_of(read_sidecar(path))
    assert list(diagnostics) == ['engine key', 'layer precisions']
    assert len(diagnostics['engine key']) == 16
    assert path.stem.endswith(f'-{diagnostics["engine key"]}')
    assert 'float32' in diagnostics['layer precisions']


def test_reports_precisions_ignored_options_and_fallbacks():
    assert build_summary({}) == ()
    assert build_summary(
        {
            'layer_precisions': {'float16': 3, 'float32': 1},
            'layers_from': 'engine',
            'ignored_options': ['aux_streams: without effect'],
            'dla_fallback': [f'layer{i}' for i in range(12)],
        }
    ) == (
        'layer precisions (engine): 3 float16, 1 float32',
        'option without effect: aux_streams: without effect',
        '12 layers run on the GPU, not the DLA: '
        + ', '.join(f'layer{i}' for i in range(10))
        + '. Export other operators, or leave out dla_core',
    )


def test_reports_build_options_given_with_finished_engine():
    shapes = ((ShapeRange('x', (1,), (1,), (2,)),),)
    built = {'options': json.loads(BuildOptions(precision='fp16', profiles=shapes).to_json())}
    assert ineffective_options(BuildOptions(), {}) == ()
    assert ineffective_options(BuildOptions(), built) == ()
    assert ineffective_options(BuildOptions(precision='fp16', profiles=shapes), built) == ()
    assert ineffective_options(BuildOptions(precision='fp32', input_size=(4, 5)), built) == (
        'option without effect: input_size [4, 5], the engine is already built',
        'option without effect: precision fp32, the engine is already built',
    )


def test_mismatched_engine_names_rebuild_command(models, rtx, tmp_path):
    entry = EngineCache(tmp_path / 'cache').get_or_build(
        models.conv(name='a net'), BuildOptions(precision='fp16'), rtx
    )
    whole = entry.path.read_bytes()
    older = bytearray(whole)
    older[25] -= 1
    command = f"trt-ros build '{models.folder / 'a net.onnx'}' --precision fp16"
    again = f'Rebuild it on this machine: {command}'
    for damaged, said in (
        (whole[:-1], 'is damaged'),
        (bytes(older), 'does not match its sidecar'),
    ):
        entry.path.write_bytes(damaged)
        with pytest.raises(ModelError, match=said) as caught:
            open_plan(entry.path, 0, BuildOptions())
        assert caught.value.remedy == again
    sidecar_path(entry.path).unlink()
    with pytest.raises(ModelError, match='is incompatible with') as caught:
        open_plan(entry.path, 0, BuildOptions())
    assert caught.value.problem.endswith(f'incompatible with {rtx}.')
    assert caught.value.remedy == 'Rebuild it on this machine: trt-ros build MODEL.onnx'


@pytest.mark.parametrize(
    'text',
    [
        'IRuntime::deserializeCudaEngine: Error Code 2: OutOfMemory (Requested size was 9 bytes.)',
        'Error Code 1: Cuda Runtime (out of memory)',
    ],
)
def test_engine_is_kept_if_the_gpu_has_too_little_memory(
    models, rtx, library, built_cache, tmp_path, text
):
    shutil.copytree(built_cache, tmp_path / 'cache')
    entry = EngineCache(tmp_path / 'cache').get_or_build(models.conv(), BuildOptions(), rtx)
    before = entry.path.stat().st_ino
    library.is_refusing, library.errors[:] = True, [text]
    for model in (models.folder / 'conv.onnx', entry.path):
        with pytest.raises(
            BackendError, match=r'too little free memory .* \(0\.\d MB\)'
        ) as caught:
            open_engine(model, backend='tensorrt_rtx', engine_cache_dir=tmp_path / 'cache')
        assert 'free 3.0 MB of 1000.0 MB' in caught.value.cause
        assert 'Rebuild' not in caught.value.remedy
    assert entry.path.stat().st_ino == before


@pytest.fixture
def refusing(library):
    """A library on a GPU that refuses all engines."""
    library.is_refusing = True
    return library


@pytest.mark.parametrize('is_cached', [True, False])
def test_only_a_cached_engine_that_cannot_be_loaded_is_built_again(
    models, rtx, built_cache, tmp_path, refusing, is_cached
):
    if is_cached:
        shutil.copytree(built_cache, tmp_path / 'cache')
    with pytest.raises(ModelError, match='cannot load'):
        open_engine(models.conv(), backend='tensorrt_rtx', engine_cache_dir=tmp_path / 'cache')
    assert refusing.refused == 1 + is_cached


def test_only_a_cache_that_cannot_be_written_leads_to_an_engine_in_memory(
    models, rtx, tmp_path, refusing
):
    def open_in(folder):
        open_engine(
            models.conv(),
            backend='tensorrt_rtx',
            engine_cache_dir=folder,
            memory_if_unwritable=True,
        )

    shared, file = tmp_path / 'shared', tmp_path / 'file'
    shared.mkdir()
    shared.chmod(0o777)
    file.touch()
    with pytest.raises(ParameterError, match=r'not secure(?s:.*)chmod go-w'):
        open_in(shared)
    assert refusing.refused == 0
    with pytest.raises(ModelError, match='cannot load the engine'):
        open_in(file / 'cache')
    assert refusing.refused == 1


def test_an_engine_of_another_tool_with_another_memory_format_is_refused(library, plan):
    library.formats = {'x': 'HWC8', 'y': 'LINEAR'}
    with pytest.raises(ModelError, match='in another memory format than LINEAR') as caught:
        open_plan(plan, 0, BuildOptions())
    assert library.destroyed == ['engine', 'runtime']
    assert caught.value.cause == 'x is HWC8.'  # Its traceback has kept the engine until here.


@pytest.mark.parametrize(
    ('target', 'has_gpu', 'code'),
    [([], True, 1), ([], False, 0), (['--compute-capability', '8.9'], True, 0)],
)
def test_build_refuses_what_this_gpu_would_not_load_and_tells_others(
    models, rtx, built_cache, tmp_path, set_driver, capsys, target, has_gpu, code
):
    gpu = GpuInfo(0, 'NVIDIA H100', (9, 0), 132, 80 << 30, False, 'GPU-1', '0000:01:00.0')
    shutil.copytree(built_cache, tmp_path / 'cache')
    cache = EngineCache(tmp_path / 'cache')
    options = BuildOptions(compute_capabilities=tuple(target[1:]))
    entry = cache.get_or_build(models.conv(), options, rtx)
    sidecar = {**entry.sidecar, 'quantized': {'fp8 convolutions': ['stem']}}
    sidecar_path(entry.path).write_text(json.dumps(sidecar))
    set_driver(*(gpu,) * has_gpu)
    found = main(['build', str(models.conv()), '--engine-cache-dir', str(cache.root), *target])
    assert found == code
    shown = capsys.readouterr().err
    sign = ':' if code else ','
    assert f'on compute capability 9.0{sign} it computes them wrongly' in shown
