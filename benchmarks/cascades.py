"""
Time a detector and a classifier of its objects: as one bundle, two pipelines, and two nodes.

The demo's detector, or --detector, on a scene of the demo; the classifier is of eight convolutions
on 96 x 96 pixels and 1000 classes, or --classifier. Where torch is installed, a CUDA graph of
torch.compile does the same: it selects boxes on the GPU, and crops a fixed number of them. The
nodes are in one process with the camera, and images pass by reference; latency is from stamp to
published detections. Needs ROS 2 for these.

    python benchmarks/cascades.py [--detector FILE] [--classifier FILE] [--max-regions N]
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
import statistics
import sys
from tempfile import TemporaryDirectory
import threading
import time
from typing import Any

import numpy as np
from onnx import helper
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'test'))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'tools'))

from demo.scene import draw_scene

from support.bundles import weights
from support.save_network import save_network
from trt_ros import Frame, Pipeline, Thresholds
from trt_ros.demo import MODEL
from trt_ros.families.registry import CLASSIFIERS

node = helper.make_node


def write_classifier(path: Path) -> Path:
    """Write a classifier of random weights, of a dynamic batch size."""
    rng, nodes, last, constants = np.random.default_rng(0), [], 'images', {}
    widths = (3, 32, 32, 64, 64, 128, 128, 256, 256)
    for i, (before, after) in enumerate(pairwise(widths)):
        constants[f'c{i}'] = weights(rng, after, before, 3, 3)
        stride = [1 + (i % 2 == 0)] * 2
        nodes.append(node('Conv', [last, f'c{i}'], [f'y{i}'], strides=stride, pads=[1] * 4))
        last = f'z{i}'
        nodes.append(node('Relu', [f'y{i}'], [last]))
    nodes += [
        node('GlobalAveragePool', [last], ['pooled']),
        node('Flatten', ['pooled'], ['flat']),
        node('MatMul', ['flat', 'w'], ['logits']),
        node('Softmax', ['logits'], ['scores'], axis=1),
    ]
    constants['w'] = weights(rng, 1000, 256).T.copy()
    ends = {'images': ('n', 3, 96, 96)}, {'scores': ('n', 1000)}
    return Path(save_network(path, nodes, *ends, constants=constants))


def write_bundle(folder: Path, detector: Path, classifier: Path, max_regions: int) -> Path:
    """Link both networks, and write the bundle of them."""
    models: dict[str, Any] = {}
    for name, path in (('detector', detector), ('classifier', classifier)):
        target = folder / f'{name}{path.suffix}'
        if not target.exists():
            target.write_bytes(path.read_bytes())
        models[name] = {'parameters': {'model_path': target.name}}
    models['classifier']['options'] = {'max_regions': max_regions, 'decoder': 'classifier'}
    path = folder / 'cascade.yaml'
    document = {'models': models, 'pipeline': {'regions': {'detector': 'classifier'}}}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def in_turn(ways: dict[str, Callable[[], Any]], rounds: int) -> Iterator[tuple[str, list[float]]]:
    """Yield the times of each way in ms."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 20):
        for name, run in ways.items():
            begin = time.perf_counter()
            run()
            if number >= 20:
                times[name].append(1e3 * (time.perf_counter() - begin))
    yield from times.items()


def torch_graph(
    args: Namespace, bundle: Path, both: Any, pixels: np.ndarray
) -> Callable[[], dict[str, np.ndarray]]:
    """Return the bundle as a CUDA graph of torch.compile: a YOLOv8 and a classifier."""
    import torch
    from torch_network import (
        DEVICE,
        Graph,
        best_boxes,
        boxes_of,
        compiled,
        compiled_network,
        cropped,
        prepared,
    )

    (image,), (region,) = both.detector.feeds.values(), both.regions.feeds.values()
    box = image.preprocess.letterbox(pixels.shape[1::-1])
    prepare = compiled(prepared(image.preprocess, box))
    crop = compiled(cropped(region.crop.preprocess))
    detect = compiled_network(args.detector, 'fp32')
    classify = compiled_network(bundle.parent / 'classifier.onnx', 'fp32')

    def select(head: torch.Tensor) -> dict[str, torch.Tensor]:
        found = [each[0] for each in boxes_of(head, box)]
        return best_boxes(*found, Thresholds(0.3), candidates=256, count=100)

    select = compiled(select)

    def work(image: torch.Tensor) -> dict[str, torch.Tensor]:
        (head,) = detect(prepare(image)).values()
        found = select(head)
        (classes,) = classify(crop(image[0], found['boxes'][: args.max_regions])).values()
        return {**found, 'classes': classes}

    graph = Graph(work, torch.zeros((1, *pixels.shape), dtype=torch.uint8, device=DEVICE))

    def run() -> dict[str, np.ndarray]:
        graph.inputs[0][0] = pixels
        return graph.run()

    return run


def agreement(ours: Any, theirs: dict[str, np.ndarray]) -> str:
    """Return how the results of torch differ from ours."""
    count = int((theirs['scores'] > 0).sum())
    if len(ours) != count:
        return f"{len(ours)} objects, {count} of torch's graph"
    boxes = np.abs(ours.xyxy - theirs['boxes'][:count]).max()
    classes = [each.scores for each in ours.region_results if each is not None]
    scores = np.abs(classes - theirs['classes'][: len(classes)]).max()
    return f"torch's graph: boxes to {boxes:.2f} pixels, scores of classes to {scores:.2g}"


def pipelines(args: Namespace, bundle: Path, pixels: np.ndarray) -> None:
    """Print the times of one bundle and of two pipelines."""
    options = {'backend': args.backend, 'gpu_wait': 'spin'}
    frame = Frame.from_pixels(pixels, 'bgr8')
    with (
        Pipeline.open(bundle, **options) as both,
        Pipeline.open(args.detector, **options) as detector,
        Pipeline.open(
            bundle.parent / 'classifier.onnx',
            families=CLASSIFIERS,
            decoder='classifier',
            regions=True,
            batch=args.max_regions,
            **options,
        ) as classifier,
    ):

        def two() -> None:
            found = detector(frame, score=0.3)
            classifier.infer_regions(frame, found[: args.max_regions])

        ways = {
            'bundle': lambda: both(frame, score=0.3),
            'two pipelines': two,
            'the detector alone': lambda: detector(frame, score=0.3),
        }
        if find_spec('torch'):
            run = torch_graph(args, bundle, both, pixels)
            ways['torch.compile, one CUDA graph'] = run
            print(agreement(both(frame, score=0.3), run()))
        print('\n'.join(both.log_lines))
        print(f'{len(both(frame, score=0.3))} objects\n| run | p50 ms | p99 ms |\n|---|---|---|')
        for name, each in in_turn(ways, args.rounds):
            print(f'| {name} | {np.percentile(each, 50):.3f} | {np.percentile(each, 99):.3f} |')
        if hasattr(both.detector, 'shared'):  # On a GPU.
            from trt_ros.runtime.gpu.measure import Work, graph_times, stage_times

            work = Work.of(both.detector, frame)
            found = graph_times(both.detector, work, args.rounds)
            stages = {'all': found['gpu'], **stage_times(both.detector, work, args.rounds)}
            for name, each in stages.items():
                print(f'{name}: {1e3 * statistics.median(each):.0f} us on the GPU')


def nodes_of(kind: str, args: Namespace, bundle: Path) -> list[Any]:
    """Return the nodes of a row, the publisher of the results last."""
    from rclpy.parameter import Parameter

    from trt_ros.nodes.classifier import ClassifierNode
    from trt_ros.nodes.detector import DetectorNode

    def make(node_class: type, *remapped: str, **values: Any) -> Any:
        shared = {'backend': args.backend, 'qos_reliability': 'reliable', 'autostart': True}
        made = node_class(
            namespace=kind.replace(' ', '_'),
            cli_args=['--ros-args', *(part for each in remapped for part in ('-r', each))],
            parameter_overrides=[Parameter(k, value=v) for k, v in {**shared, **values}.items()],
        )
        made.use_intra_process_comms = True
        return made

    if kind == 'bundle':
        return [make(DetectorNode, model_path=str(bundle))]
    return [
        make(DetectorNode, model_path=str(args.detector)),
        make(
            ClassifierNode,
            'detections:=detector/detections',
            model_path=str(bundle.parent / 'classifier.onnx'),
            decoder='classifier',
            regions=True,
            max_regions=args.max_regions,
        ),
    ]


def nodes(kind: str, args: Namespace, bundle: Path, pixels: np.ndarray) -> None:
    """Print the latency of one node, or of two."""
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from sensor_msgs.msg import Image
    from std_msgs.msg import Header

    from trt_ros.ros.messages import ImageSender

    rclpy.init()
    made = nodes_of(kind, args, bundle)
    camera = rclpy.create_node('camera', namespace=kind.replace(' ', '_'))
    camera.use_intra_process_comms = True
    sender = ImageSender(camera, camera.create_publisher(Image, 'image', 1))
    executor = SingleThreadedExecutor()
    for each in made:
        executor.add_node(each)
    spinning = threading.Thread(target=executor.spin)
    spinning.start()
    height, width = pixels.shape[:2]
    try:
        while not all(each.state_label == 'active' for each in made):
            assert not any(each.failure for each in made), [each.failure for each in made]
            time.sleep(0.1)
        counts = made[-1]._counts
        for number in range(args.rounds + 50):
            if number == 50:
                since = time.monotonic()
            stamp = camera.get_clock().now().to_msg()
            sender.begin(Header(stamp=stamp, frame_id='camera'), (width, height))[:] = pixels
            sender.send()
            time.sleep(1 / args.rate)
        time.sleep(0.5)
        ages = [1e3 * age for when, age in counts._times['latency'] if when >= since]
        p50, p99 = np.percentile(ages, [50, 99])
        print(f'| {kind} | {p50:.3f} | {p99:.3f} | {len(ages)} |', flush=True)
    finally:
        executor.shutdown()
        spinning.join()
        for each in (*made, camera):
            each.destroy_node()
        rclpy.shutdown()


def main() -> None:
    """Measure and print tables in Markdown."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument('--detector', type=Path, default=Path(MODEL))
    parser.add_argument('--classifier', type=Path)
    parser.add_argument('--max-regions', type=int, default=8)
    parser.add_argument('--backend', default='auto')
    parser.add_argument('--rounds', type=int, default=500)
    parser.add_argument('--rate', type=float, default=30.0, help='images per second of the nodes')
    parser.add_argument('--no-nodes', action='store_true')
    args = parser.parse_args()
    pixels = draw_scene(np.random.default_rng(3), (1280, 720))[0]
    with TemporaryDirectory() as name:
        folder = Path(name)
        classifier = args.classifier or write_classifier(folder / 'classifier.onnx')
        bundle = write_bundle(folder, args.detector, classifier, args.max_regions)
        pipelines(args, bundle, pixels)
        if args.no_nodes:
            return
        print('| nodes | latency p50 ms | p99 ms | images |\n|---|---|---|---|')
        for kind in ('bundle', 'two nodes'):
            nodes(kind, args, bundle, pixels)


if __name__ == '__main__':
    main()
