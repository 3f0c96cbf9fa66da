"""
The demo: image source, detector and overlay in processes of their own, on drawn pictures.

This process subscribes to their topics and compares the detections with the drawn shapes.
"""

import os
from pathlib import Path
import re
from tempfile import TemporaryDirectory
import time

from demo.processes import NodeProcess, running
from demo.scene import CLASSES, RATE_HZ, draw_pictures
from demo.tally import Tally
from demo.watch import Watch, checksum
from trt_ros.demo import MODEL
from trt_ros.errors import TrtRosError
from trt_ros.media import read_picture

LOOP_SECONDS = 30.0  # Then the image source restarts.
START_SECONDS = 90.0  # Imports and opening the model take long on a slow machine.
ANNOTATED_FILE = re.compile(r'\d+\.\d{9}\.png')  # As the overlay names them.


def show(seconds: float, output: Path) -> str:
    """
    Run the demo and print detections as they arrive.

    :param output: folder of the annotated pictures and the logs.
    :returns: the summary.
    :raises TrtRosError: when a node fails, or too few of the drawn shapes are detected.
    """
    prepare(output)
    with TemporaryDirectory(prefix='trt_ros_demo_') as pictures, running() as nodes:
        print(
            'Starting detector, overlay and image source in processes of their own; '
            f'ROS_DOMAIN_ID={os.environ["ROS_DOMAIN_ID"]}, on this machine only.',
            flush=True,
        )
        detector = NodeProcess.start(
            'detector',
            output,
            {
                'model_path': str(MODEL),
                'score_threshold': 0.4,
                'qos_reliability': 'reliable',
                'autostart': True,
            },
        )
        nodes.append(detector)
        nodes.append(
            NodeProcess.start(
                'overlay',
                output,
                {
                    'output_dir': str(output.resolve()),
                    'qos_reliability': 'reliable',
                    'max_rate_hz': 5.0,
                },
                remap={'detections': 'detector/detections'},
            )
        )
        # JPEG changes the pixels; the image source reads the same changed pixels.
        truth = {
            checksum(read_picture(path)): (xyxy, labels)
            for path, xyxy, labels in draw_pictures(Path(pictures), min(seconds, LOOP_SECONDS))
        }
        print(f'Drew {len(truth)} pictures of a moving scene, 640x480.', flush=True)
        watch = Watch()
        try:
            wait_for(detector, watch)
            for line in startup_lines(detector):
                print(f'detector: {line}')
            nodes.append(
                NodeProcess.start('image_source', output, {'source': pictures, 'rate_hz': RATE_HZ})
            )
            tally = Tally(truth)
            listen(watch, nodes, tally, seconds)
        finally:
            watch.close()
    summary = tally.summary()
    annotated = annotated_pictures(output)
    if not annotated:
        raise TrtRosError(
            'No annotated picture was written.', remedy=f'Read {output / "overlay.log"}.'
        )
    return f'{summary}\n{len(annotated)} annotated pictures: {output}'


def annotated_pictures(output: Path) -> list[Path]:
    """Return the pictures that the overlay has written."""
    return [path for path in output.iterdir() if ANNOTATED_FILE.fullmatch(path.name)]


def prepare(output: Path) -> None:
    """
    Create the output folder and delete the pictures of an earlier run.

    :raises TrtRosError: when the folder is not writable.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        for path in annotated_pictures(output):
            path.unlink()
        (output / 'detector.log').touch()
    except OSError as error:
        raise TrtRosError(
            f'Folder {output} cannot be written.',
            cause=str(error),
            remedy='Choose another folder with --output.',
        ) from error


def wait_for(detector: NodeProcess, watch: Watch) -> None:
    """
    Wait until the detector has opened its model.

    :raises TrtRosError: when it has exited, has failed, or START_SECONDS have passed.
    """
    deadline = time.monotonic() + START_SECONDS
    while not watch.is_detector_ready:
        watch.listen(0.2)
        detector.check()
        if 'Startup failed' in detector.log_text() or time.monotonic() > deadline:
            raise detector.error('The detector did not start.')


def startup_lines(detector: NodeProcess) -> list[str]:
    """Return the log lines of the detector about its backend, decoder and input."""
    lines = re.findall(r'\[detector\]: (.*)', detector.log_text())
    return [line for line in lines if line.startswith(('backend ', 'decoder ', 'input '))]


def listen(watch: Watch, nodes: list[NodeProcess], tally: Tally, seconds: float) -> None:
    """
    Count detections for `seconds` from the first that match a received image; print some.

    The detector may have discovered the image source seconds before this process does.

    :raises TrtRosError: when a node has exited, or nothing arrives within START_SECONDS.
    """
    deadline = time.monotonic() + START_SECONDS
    began = printed = 0.0
    while not began or time.monotonic() < began + seconds:
        watch.listen(0.2)
        for node in nodes:
            node.check()
        found = tally.add(watch.sightings(behind=5))
        now = time.monotonic()
        if not tally.drawn and now > deadline:
            missing = 'images' if tally.images else 'detections'
            raise TrtRosError(
                f'No {missing} received within {START_SECONDS:.0f} s.',
                remedy=f"Read the nodes' logs: {nodes[0].log.parent}/*.log.",
            )
        if found is None or not tally.drawn:
            continue
        began = began or now
        if now >= printed + 0.5:
            printed = now
            shapes = '  '.join(
                f'{CLASSES[label]} {score:.2f}' for label, score in zip(found.labels, found.scores)
            )
            print(f'{now - began:5.1f} s  {shapes or "nothing"}', flush=True)
    tally.add(watch.sightings())
