"""The demo's own detector, from picture to boxes, on the GPU and on the CPU."""

import json
import subprocess
import sys

from demo.scene import held_out
import numpy as np
import pytest

from support.tiled import with_batch
from trt_ros.cli import main
from trt_ros.demo import MODEL
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.nms import iou
from trt_ros.vision.thresholds import Thresholds

pytestmark = pytest.mark.gpu

SERVE_CAMERAS = """
import sys
import numpy as np
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame
path, cameras, device, frames_in_flight = sys.argv[1], *map(int, sys.argv[2:])
pipeline = Pipeline.open(  # As the nodes do, whose max_batch_size is 4.
    LabeledOptions(model_path=path, device=device, frames_in_flight=frames_in_flight),
    batch=min(cameras, 4))
frames = [Frame.from_pixels(np.zeros((1080, 1920, 3), np.uint8))] * cameras
for _ in range(10):
    results = pipeline.infer_all(frames)
print(len(results), 'results', flush=True)
sys.stdin.read()
pipeline.close()
"""

ASKED = Thresholds(score=0.4, iou=0.5, max_detections=100)


@pytest.mark.parametrize('precision', ['auto', 'fp16'])
def test_the_gpu_finds_what_the_cpu_finds_in_held_out_pictures(gpu, precision):
    on_gpu = Pipeline.open(MODEL, precision=precision, device=gpu.index)
    assert on_gpu.backend != 'onnxruntime'
    assert 'CUDA graph' in on_gpu.log_lines[-1]
    on_cpu = Pipeline.open(MODEL, backend='onnxruntime')
    found = alike = 0
    for image, _, _ in held_out(20):
        frame = Frame.from_pixels(image)
        got, want = on_gpu.infer(frame, ASKED), on_cpu.infer(frame, ASKED)
        found += max(len(got), len(want))
        for box, label in zip(want.xyxy, want.labels):
            alike += iou(box, got.xyxy[got.labels == label]).max(initial=0.0) > 0.9
    on_gpu.close()
    on_cpu.close()
    assert found > 20
    # A score beside the threshold may fall on its other side.
    assert alike >= 0.97 * found


def test_bench_decodes_what_is_no_box_on_the_gpu(gpu, tmp_path, capsys):
    from support.save_network import save_text

    graph = '{ y = ReduceMean <axes=[1], keepdims=0>(x) }'
    save_text(tmp_path / 'far.onnx', f'(float[1, 3, 64, 64] x) => (float[1, 64, 64] y) {graph}')
    here = ['--device', str(gpu.index), '--frames', '20']
    assert main(['bench', str(tmp_path / 'far.onnx'), *here, '--decoder', 'depth']) == 0
    assert 'decoding on the GPU' in capsys.readouterr().out


def test_bench_compares_precisions(gpu, tmp_path, capsys):
    flags = f'--layers --device {gpu.index} --image-size 640x480 --frames 300 --warm-up 30'
    flags += ' --frames-in-flight 2 --gpu-wait block --precisions fp32,fp16,bf16'
    files = ['--json', str(tmp_path / 'all.json'), '--export-times', str(tmp_path / 'times.csv')]
    assert main(['bench', str(MODEL), *flags.split(), *files]) == 0
    said = capsys.readouterr().out
    assert 'with 2 in flight' in said and 'GPU clock (MHz): ' in said
    results = json.loads((tmp_path / 'all.json').read_text())['results']
    assert [found['precision'] for found in results] == ['fp32', 'fp16', 'bf16']
    for found in results:
        assert found['agreement']['cosine'] > 0.99 and found['agreement']['max_error'] > 0
        assert found['layers_ms'] and found['graph_ms']['gpu']['p50'] > 0
        assert found['watts'] is None or 10 < found['watts'] < 2000
    lines = said.splitlines()
    table = lines[next(n for n, line in enumerate(lines) if line.startswith('precision ')) :]
    assert [line.split()[0] for line in table[1:4]] == ['fp32', 'fp16', 'bf16']
    assert 'fast' in table[4]
    assert len((tmp_path / 'times.csv').read_text().splitlines()) == 901


@pytest.mark.parametrize('flag', ['--no-graph', '--no-transfers'])
def test_bench_runs_without_graph_or_transfers(flag, gpu, capsys):
    flags = f'--device {gpu.index} --image-size 640x480 --frames 20 {flag}'
    assert main(['bench', str(MODEL), *flags.split()]) == 0
    said = capsys.readouterr().out
    assert ('no graph' in said) == (flag == '--no-graph')
    assert ('copy in' in said) == (flag == '--no-graph')


def test_verify_agrees_with_onnx_runtime_and_reports_difference(gpu, tmp_path, capsys):
    import cv2

    pictures = []
    for number, (image, _, _) in enumerate(held_out(3)):
        pictures.append(str(tmp_path / f'{number}.png'))
        cv2.imwrite(pictures[-1], np.ascontiguousarray(image))
    here = ['--device', str(gpu.index)]
    assert main(['verify', str(MODEL), *pictures, *here]) == 0
    assert 'agrees' in capsys.readouterr().out
    assert main(['verify', str(MODEL), *pictures, *here, '--min-cosine', '1']) == 1
    assert 'differs: ' in capsys.readouterr().out


def test_eight_cameras_take_at_most_a_third_more_gpu_memory_than_one(gpu, tmp_path, used_nbytes):
    """All that the process holds, its CUDA context too."""
    path = with_batch(tmp_path / 'shapes.onnx', 'batch')
    taken = {}
    # The first two also build the engines.
    for cameras, frames_in_flight in ((1, 1), (8, 1), (1, 1), (8, 1), (8, 2)):
        before = used_nbytes(0)  # Of no process, or the whole GPU.
        with subprocess.Popen(
            [
                *(sys.executable, '-c', SERVE_CAMERAS, str(path)),
                *map(str, (cameras, gpu.index, frames_in_flight)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout.readline() == f'{cameras} results\n'
            taken[cameras, frames_in_flight] = (used_nbytes(process.pid) - before) >> 20
            process.stdin.close()
        assert process.returncode == 0
    print(f'GPU memory (MiB) by cameras and frames in flight: {taken}')
    assert taken[8, 1] <= 1.3 * taken[1, 1]
    assert taken[8, 2] <= 1.4 * taken[1, 1]
