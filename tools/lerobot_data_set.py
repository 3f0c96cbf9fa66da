"""
Recordings with joints and cameras as a data set of LeRobot, version 3: an episode per recording.

    python tools/lerobot_data_set.py drives/ --joints pan,lift,grip --fps 30 --output data_set

A development tool that the package itself never imports; it needs pyarrow. A frame has the newest
image of each camera and the newest joint state, and as action the newest command one frame later;
without commands, the joint state one frame later.
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from trt_ros.errors import BadFrameError, ParameterError, TrtRosError, requires
from trt_ros.labelling.batch import find_recordings
from trt_ros.recording import Recording
from trt_ros.recording.messages import RecordedMessage
from trt_ros.ros.dds.cdr import Fields, read_compressed_image
from trt_ros.ros.dds.cdr_multiarray import read_multi_array
from trt_ros.ros.frames import FrameReader, color_topics
from trt_ros.video import IMAGE_TYPES, VIDEO_TYPES
from trt_ros.vision.frame import Frame, to_color

JPEG_QUALITY = 95
EPISODES_PER_CHUNK = 1000
IMAGES_PER_EPISODE = 50  # Of which the statistics of the pixels are computed.
_NO_TEXTS = np.empty(0, np.uint8), ()


def read_joints(kind: str, message: np.ndarray, joints: Sequence[str]) -> np.ndarray:
    """
    Return the positions of joints in a serialized message, (N,) float32.

    :param kind: JointState, JointTrajectory, of which the first point counts, or a multi-array,
        which has them in the order of `joints`.
    :raises BadFrameError: when the message has not all of them.
    """
    if 'MultiArray' in kind:
        dtype = np.dtype('f4' if 'Float32' in kind else 'f8')
        names, values = joints, read_multi_array(message, dtype).ravel()
    else:
        fields = Fields(message)
        fields.stamp()
        fields.text('header.frame_id')
        _, names = fields.texts('name', None, _NO_TEXTS)
        if 'JointTrajectory' in kind and not fields.number('points'):
            names = ()
        values = fields.array('position', np.dtype('f8')) if names else np.zeros(0)
    found = dict(zip(names, values.tolist()))
    missing = [name for name in joints if name not in found]
    if missing:
        raise BadFrameError(
            'missing joints',
            f'A message of type {kind} has no position of {", ".join(missing)}.',
            cause=f'It has {", ".join(found) or "none"}.',
            remedy='Correct --joints, --state or --action.',
        )
    return np.array([found[name] for name in joints], np.float32)


class _Camera:
    """The newest image of a topic, as JPEG."""

    def __init__(self, kind: str) -> None:
        self._kind, self._reader = kind, FrameReader(kind)
        self._message: np.ndarray | None = None
        self._frame: Frame | None = None
        self._jpeg = b''

    def read(self, message: np.ndarray) -> None:
        self._jpeg = b''
        if self._kind in VIDEO_TYPES:
            if complete := self._reader.read(message):
                self._frame = complete[-1][1]
        else:
            self._message = message

    @property
    def has_image(self) -> bool:
        return self._message is not None or self._frame is not None

    def jpeg(self) -> bytes:
        if not self._jpeg:
            if self._kind == IMAGE_TYPES[1] and self._message is not None:
                image = read_compressed_image(self._message)
                if bytes(image.data[:2]) == b'\xff\xd8' and 'compressed rgb' not in image.format:
                    self._jpeg = image.data.tobytes()
                    return self._jpeg
            if self._message is not None:
                [(_, self._frame)] = self._reader.read(self._message)
            assert self._frame is not None
            options = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]
            pixels = np.asarray(to_color(self._frame, 'bgr'))
            self._jpeg = cv2.imencode('.jpg', pixels, options)[1].tobytes()
        return self._jpeg


class _Statistics:
    def __init__(self) -> None:
        self._count, self._sum, self._squares = 0, np.float64(0), np.float64(0)
        self._least, self._largest = np.float64(np.inf), np.float64(-np.inf)

    def add(self, values: np.ndarray) -> None:
        values = values.astype(np.float64)
        self._count += len(values)
        self._sum = self._sum + values.sum(0)
        self._squares = self._squares + (values**2).sum(0)
        self._least = np.minimum(self._least, values.min(0))
        self._largest = np.maximum(self._largest, values.max(0))

    def as_dict(self, shape: tuple[int, ...]) -> dict[str, Any]:
        mean = self._sum / self._count
        deviation = np.sqrt(np.maximum(self._squares / self._count - mean**2, 0))
        values = {'min': self._least, 'max': self._largest, 'mean': mean, 'std': deviation}
        found = {name: np.reshape(each, shape).tolist() for name, each in values.items()}
        return {**found, 'count': [self._count]}


class LeRobotDataSet:
    """
    A data set of LeRobot in a folder, with images in its Parquet files. Complete after close().

    :param cameras: topics by name.
    :raises ParameterError: when pyarrow is missing, or the folder exists.
    """

    def __init__(self, folder: Path, args: Namespace) -> None:
        with requires('the Python package pyarrow', 'The export', 'pip install pyarrow.'):
            import pyarrow
            import pyarrow.parquet
        self._arrow, self._folder, self._args = pyarrow, folder, args
        self._joints: list[str] = args.joints.split(',')
        self._sizes: dict[str, tuple[int, int]] = {}
        self._statistics: dict[str, _Statistics] = {}
        self._episodes: list[dict[str, Any]] = []
        self._frames = 0
        if folder.exists():
            raise ParameterError(f'{folder} exists already.', remedy='Choose another --output.')

    def add(self, path: Path) -> int:
        """Append a recording as an episode; return its number of frames, or raise TrtRosError."""
        with closing(Recording(path)) as recording:
            rows = list(self._rows(recording, self._cameras(recording)))
        if not rows:
            raise ParameterError(
                f'Recording {path} has no frames.',
                cause='It has no time with an image of each camera and all joints.',
                remedy='Leave it out, or name other topics with --cameras and --state.',
            )
        number = len(self._episodes)
        for index, row in enumerate(rows):
            row |= {'timestamp': index / self._args.fps, 'frame_index': index, 'task_index': 0}
            row |= {'episode_index': number, 'index': self._frames + index}
        self._check(path, rows)
        chunk, file = divmod(number, EPISODES_PER_CHUNK)
        self._write(f'data/chunk-{chunk:03d}/file-{file:03d}', rows, self._schema(rows[0]))
        self._episodes.append(
            {
                **{'episode_index': number, 'tasks': [self._args.task], 'length': len(rows)},
                **{'data/chunk_index': chunk, 'data/file_index': file},
                **{'dataset_from_index': self._frames},
                **{'dataset_to_index': self._frames + len(rows)},
                **{'meta/episodes/chunk_index': 0, 'meta/episodes/file_index': 0},
            }
        )
        self._frames += len(rows)
        return len(rows)

    def _cameras(self, recording: Recording) -> dict[str, str]:
        if self._args.cameras:
            return dict(each.split('=', 1) for each in self._args.cameras)
        topics = color_topics(recording)
        parts = [topic.strip('/').removesuffix('/compressed').split('/') for topic in topics]
        return {'_'.join(each[:-1]) or each[0]: topic for each, topic in zip(parts, topics)}

    def _rows(self, recording: Recording, cameras: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Yield the frames of a recording, at a constant rate."""
        state_topic, action_topic = self._args.state, self._args.action or self._args.state
        wanted = {*cameras.values(), state_topic, action_topic}
        if missing := wanted - recording.topics.keys():
            raise ParameterError(
                f'Recording {recording.path} has no topic {", ".join(sorted(missing))}.',
                cause=f'Its topics are {", ".join(recording.topics)}.',
                remedy='Name its topics with --cameras, --state and --action.',
            )
        kinds = {topic: recording.topics[topic].message_type for topic in wanted}
        pictures = {topic: _Camera(kinds[topic]) for topic in cameras.values()}
        joints: dict[str, np.ndarray] = {}
        first_ns, due_ns, last_ns, count = 0, None, 0, 0
        row: dict[str, Any] | None = None
        end = RecordedMessage('', 0, np.empty(0, np.uint8), 0, 0)
        for topic, time_ns, message, *_ in chain(recording.messages(sorted(wanted)), [end]):
            if due_ns is None:
                is_complete = len(joints) == len({state_topic, action_topic})
                if is_complete and all(each.has_image for each in pictures.values()):
                    first_ns = due_ns = last_ns
            while due_ns is not None and due_ns < (time_ns if topic else last_ns + 1):
                if row is not None:
                    yield {**row, 'action': joints[action_topic]}
                row = {'observation.state': joints[state_topic]}
                for name, camera in cameras.items():
                    row[f'observation.images.{name}'] = pictures[camera].jpeg()
                count += 1
                due_ns = first_ns + round(count * 1e9 / self._args.fps)
            last_ns = time_ns
            if topic in pictures:
                pictures[topic].read(message)
            elif topic:
                joints[topic] = read_joints(kinds[topic], message, self._joints)

    def _check(self, path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        """Compare the sizes of images, and add to the statistics."""
        stride = -(-len(rows) // IMAGES_PER_EPISODE)
        for name, value in rows[0].items():
            statistics = self._statistics.setdefault(name, _Statistics())
            if not isinstance(value, bytes):
                statistics.add(np.array([row[name] for row in rows]).reshape(len(rows), -1))
                continue
            for row in rows[::stride]:
                pixels = cv2.imdecode(np.frombuffer(row[name], np.uint8), cv2.IMREAD_COLOR)
                if pixels is None:
                    raise BadFrameError('undecodable image', f'Cannot decode images of {name}.')
                size = self._sizes.setdefault(name, pixels.shape[:2])
                if size != pixels.shape[:2]:
                    raise ParameterError(
                        f'Images of {name} have several sizes.',
                        cause=f'{pixels.shape[:2]} in {path}, {size} before (height, width).',
                        remedy='Export recordings of one size to a data set.',
                    )
                statistics.add(pixels[::4, ::4, ::-1].reshape(-1, 3) / 255.0)

    def _schema(self, row: Mapping[str, Any]) -> Any:
        arrow = self._arrow
        image = arrow.struct({'bytes': arrow.binary(), 'path': arrow.string()})
        vector = arrow.list_(arrow.float32(), len(self._joints))
        types = {np.ndarray: vector, bytes: image, float: arrow.float32(), int: arrow.int64()}
        return arrow.schema({name: types[type(each)] for name, each in row.items()})

    def _write(self, name: str, rows: Sequence[Mapping[str, Any]], schema: Any = None) -> None:
        plain = [
            {
                name: {'bytes': each} if isinstance(each, bytes) else each
                for name, each in row.items()
            }
            for row in rows
        ]
        path = self._folder / f'{name}.parquet'
        path.parent.mkdir(parents=True, exist_ok=True)
        self._arrow.parquet.write_table(self._arrow.Table.from_pylist(plain, schema), path)

    def close(self) -> None:
        """Write what describes the episodes, if there are any."""
        if not self._episodes:
            return
        self._write('meta/episodes/chunk-000/file-000', self._episodes)
        # LeRobot reads it by pandas, with the tasks as index.
        arrow = self._arrow
        column = {'pandas_type': 'unicode', 'numpy_type': 'object', 'metadata': None}
        index = {
            **{'index_columns': ['task'], 'column_indexes': [], 'pandas_version': '2.0.0'},
            'columns': [{'name': 'task', 'field_name': 'task', **column}],
        }
        schema = arrow.schema(
            {'task_index': arrow.int64(), 'task': arrow.string()}, {'pandas': json.dumps(index)}
        )
        self._write('meta/tasks', [{'task_index': 0, 'task': self._args.task}], schema)
        features = {name: self._feature(name) for name in self._statistics}
        info = {
            **{'codebase_version': 'v3.0', 'robot_type': None, 'fps': self._args.fps},
            **{'total_episodes': len(self._episodes), 'total_frames': self._frames},
            **{'total_tasks': 1, 'chunks_size': EPISODES_PER_CHUNK},
            **{'data_files_size_in_mb': 100, 'video_files_size_in_mb': 500},
            'data_path': 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet',
            **{'video_path': None, 'splits': {'train': f'0:{len(self._episodes)}'}},
            'features': features,
        }
        statistics = {
            name: each.as_dict((3, 1, 1) if name in self._sizes else features[name]['shape'])
            for name, each in self._statistics.items()
        }
        for name, content in (('info', info), ('stats', statistics)):
            (self._folder / f'meta/{name}.json').write_text(json.dumps(content, indent=1))

    def _feature(self, name: str) -> dict[str, Any]:
        if name in self._sizes:
            axes = ['height', 'width', 'channels']
            return {'dtype': 'image', 'shape': [*self._sizes[name], 3], 'names': axes}
        if name in ('observation.state', 'action'):
            return {'dtype': 'float32', 'shape': [len(self._joints)], 'names': self._joints}
        kind = 'float32' if name == 'timestamp' else 'int64'
        return {'dtype': kind, 'shape': [1], 'names': None}


def main(arguments: Sequence[str] | None = None) -> int:
    """Export recordings; 1 when one was left out."""
    parser = ArgumentParser(
        description='Export recordings as a data set of LeRobot.',
        formatter_class=ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument('recordings', nargs='+', type=Path, help='recordings or folders of them')
    parser.add_argument('--output', type=Path, required=True, help='folder to write')
    parser.add_argument('--joints', required=True, help='names, separated by commas')
    parser.add_argument('--fps', type=int, required=True, help='frames per second of the data set')
    parser.add_argument('--state', default='/joint_states', help='topic of the joint states')
    parser.add_argument('--action', help='topic of the commands; default: the next joint state')
    parser.add_argument(
        '--cameras', nargs='+', metavar='NAME=TOPIC', help='image topics; default: all by name'
    )
    parser.add_argument('--task', default='', help='task of the episodes in words')
    args = parser.parse_args(arguments)
    if args.fps < 1:
        parser.error(f'--fps is {args.fps}: set it to at least 1')
    left_out = 0
    try:
        data_set = LeRobotDataSet(args.output, args)
        for path, _ in find_recordings(args.recordings):
            try:
                print(f'{path}: {data_set.add(path)} frames', flush=True)
            except TrtRosError as error:
                left_out += 1
                print(f'{path} is left out: {error}', flush=True)
        data_set.close()
    except TrtRosError as error:
        raise SystemExit(str(error)) from error
    return int(left_out > 0)


if __name__ == '__main__':
    raise SystemExit(main())
