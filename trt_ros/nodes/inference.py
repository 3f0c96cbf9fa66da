"""Base class of the nodes that run a network on images and tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar

from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image
from std_msgs.msg import Header
from std_srvs.srv import Trigger
from vision_msgs.msg import Detection2DArray

from trt_ros.errors import ParameterError, printable
from trt_ros.families.family import Family
from trt_ros.model.run_inputs import RunInputs
from trt_ros.nodes.bound_inputs import BindingParameters, BoundInputs
from trt_ros.nodes.inputs import NodeInputs
from trt_ros.profiling import recording
from trt_ros.progress import Progress, ProgressThrottle
from trt_ros.ros.codecs.images import image_codec
from trt_ros.ros.dds.rcl import MemoryHooks
from trt_ros.ros.diagnostics import CountingNode, FrameCounts
from trt_ros.ros.inputs import ImageTopicsParameters
from trt_ros.ros.lifecycle import NodeParameters
from trt_ros.ros.messages import DetectionSender, ImageSender
from trt_ros.ros.parameters import mutable_param, param
from trt_ros.ros.qos import RESULTS
from trt_ros.ros.stream import TopicStream
from trt_ros.ros.topic import Topic, resolve_topic
from trt_ros.runtime.future import Future
from trt_ros.runtime.options import PipelineOptions, changed_options
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.video import why_not_on_gpu
from trt_ros.vision.frame import Frame


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class InferenceParameters(NodeParameters, BindingParameters, ImageTopicsParameters):
    """Parameters of every inference node beside the options of its pipeline."""

    lazy: bool = mutable_param(
        False, 'Whether to process images only while a result topic has subscribers.'
    )
    profiling: bool = param(
        False,
        'Whether to record NVTX ranges for Nsight Systems: the steps of each frame, of all nodes '
        'in the process. Needs the Python package nvtx.',
    )


class Camera:
    """An image topic, and the publishers of its results below `prefix`: `outputs`."""

    def __init__(self, node: InferenceNode, topic: str, prefix: str, counts: FrameCounts) -> None:
        self.topic, self.counts = topic, counts
        self.outputs: Any = None
        self._node, self._prefix = node, prefix
        self._publishers: list[Publisher] = []
        self._detections: list[DetectionSender] = []

    def publisher(self, message_type: type, name: str, qos: QoSProfile = RESULTS) -> Publisher:
        """Create a publisher of results; a lazy node idles while none has subscribers."""
        publisher = self._node.publisher(message_type, f'~/{self._prefix}{name}', qos)
        self._publishers.append(publisher)
        return publisher

    def images(self, name: str) -> ImageSender:
        """Create a publisher of images, as `publisher` does."""
        return ImageSender(self._node, self.publisher(Image, name))

    def objects(self, name: str) -> DetectionSender:
        """Create a publisher of the boxes of objects."""
        sender = DetectionSender(self._node, self.publisher(Detection2DArray, name))
        self._detections.append(sender)
        return sender

    def rehearse(self) -> None:
        """Do again what was done to publish the last result, but for the publication."""
        for each in self._detections:
            each.rehearse()

    def is_wanted(self) -> bool:
        """Return whether images are to be processed: not lazy, or a result has subscribers."""
        return not self._node.parameters.lazy or any(
            publisher.get_subscription_count() for publisher in self._publishers
        )


class InferenceNode(CountingNode):
    """
    A node that opens a pipeline in configure and processes images while active.

    With bindings (`inputs`), there is one run per set of messages, and no batches.

    A subclass sets `Parameters`, which are also the options of its pipeline, and `families`, and
    implements `advertise` and `publish`.

    :param open_pipeline: opens the pipeline, as Pipeline.open does; tests pass a fake.
    :ivar cameras: the camera of the topic `image` or of the first image in `inputs`, or those of
        `image_topics`; while configured.
    """

    families: ClassVar[tuple[Family, ...]]

    def __init__(self, name: str = '', *, open_pipeline: Any = None, **kwargs: Any) -> None:
        self._open_pipeline = open_pipeline or partial(Pipeline.open, families=self.families)
        self._pipeline: Pipeline | None = None
        self._progress: Progress | None = None
        self._inputs: NodeInputs | None = None
        self.cameras: tuple[Camera, ...] = ()
        super().__init__(name, **kwargs)

    # Implemented by subclasses.

    def advertise(self, camera: Camera) -> Any:
        """Create and return the publishers of a camera's results, as `outputs`; raise to fail."""

    def start(self, frames: list[Frame]) -> Future[Sequence[Any]]:
        """Run the pipeline on images, at most one per camera; `frames_in_flight` runs overlap."""
        return self.pipeline.start_batch(frames)

    def infer_inputs(self, inputs: RunInputs) -> Any:
        """Run the pipeline on the images and tensors of `inputs`; calls overlap as of `infer`."""
        return self.pipeline.infer(inputs)

    def publish(self, outputs: Any, result: Any, header: Header, frame: Frame) -> None:
        """
        Publish the result of one image, or of one set of messages with bindings.

        :param outputs: return value of `advertise` for the camera.
        :param header: header of the (first) image.
        :param frame: the (first) image; None where the network gets no image.
        """

    def published(self, result: Any) -> None:
        """Do what can wait until a result is published."""

    def batch_size(self) -> int:
        """Return the maximum number of images per run."""
        return int(self.parameters.batch_size())

    def options(self) -> PipelineOptions:
        """Return the options of the pipeline."""
        options: PipelineOptions = self.parameters
        return options

    def ignored_parameters(self) -> set[str]:
        """Return the names of parameters that have no effect on the configured inputs."""
        return self.inputs.ignored_parameters()

    def make_inputs(self) -> NodeInputs:
        """Return the inputs of the open pipeline."""
        return BoundInputs(self) if self.options().has_bindings else CameraInputs(self)

    # Used by subclasses.

    @property
    def pipeline(self) -> Pipeline:
        """The open pipeline; only while configured."""
        assert self._pipeline is not None
        return self._pipeline

    @property
    def inputs(self) -> NodeInputs:
        """The inputs of the network; only while configured."""
        assert self._inputs is not None
        return self._inputs

    def configure(self) -> None:
        self._is_due = ProgressThrottle()
        self.while_configured.callback(self._clear)
        if self.parameters.profiling:
            self.get_logger().info(self.while_configured.enter_context(recording()))
        self.cameras = self._make_cameras()
        given = self.parameters
        in_flight = given.frames_in_flight or max(given.contexts, min(len(self.cameras), 2))
        self.parameters = replace(given, frames_in_flight=in_flight)
        for line in self.open():
            self.get_logger().info(line)
        self._progress = None
        for camera in self.cameras:
            camera.outputs = self.advertise(camera)
        without_effect = changed_options(given, self.ignored_parameters())
        if without_effect:  # Only a warning, because one parameter file may serve several nodes.
            self.get_logger().warning(
                f'Parameters without effect on these inputs: {", ".join(without_effect)}.'
            )

    def _make_cameras(self) -> tuple[Camera, ...]:
        topics, options = self.parameters.image_topics, self.options()
        if topics and options.has_bindings:
            given = f'inputs is {list(options.inputs)}' if options.inputs else 'a bundle runs'
            raise ParameterError(
                f'image_topics is {list(topics)}, but {given}.',
                cause='A run takes one message of each topic in inputs.',
                remedy='Leave image_topics out, and run one node per camera; or leave inputs out.',
            )
        if not topics:
            return (Camera(self, 'image', '', self._counts),)
        names = [resolve_topic(self, topic, 'image_topics') for topic in topics]
        if len(set(names)) < len(names):
            raise ParameterError(
                f'image_topics has duplicates: {", ".join(names)}.', remedy='List each topic once.'
            )
        prefixes = [f'{topic.strip("~/")}/' for topic in topics]
        if len(set(prefixes)) < len(prefixes):
            raise ParameterError(
                f'image_topics has topics with the same results: {", ".join(topics)}.',
                cause='The results of TOPIC are on ~/TOPIC/..., without a leading / or ~.',
                remedy='List one of them by another name, and remap that to the topic.',
            )
        return tuple(
            Camera(self, topic, prefix, FrameCounts(self._counts))
            for topic, prefix in zip(topics, prefixes)
        )

    def open(self) -> Iterable[str]:
        """Open the pipeline, which calls `report` with its progress; return log lines."""
        options, parameters = self.options(), self.parameters
        if options.has_bindings:
            parameters.describe_synchronization()  # Raises before a long build.
        pipeline = self._pipeline = self.while_configured.own(
            self._open_pipeline(
                options, on_progress=self.report, cancelled=self.cancelled, batch=self.batch_size()
            )
        )
        device = pipeline.device
        device.on_fault(self.fail)
        self.jpegs_on_gpu = self._decodes_on_gpu(
            'jpeg_decoder',
            'compressed',
            'JPEG images',
            device.open_jpeg_decoder,
            'nvidia-nvimgcodec-cu13[nvjpeg] (or -cu12)',
        )
        is_on_gpu = self._decodes_on_gpu(
            'video_decoder',
            'video',
            'video packets',
            lambda: why_not_on_gpu(device.cuda),
            'a driver with libnvcuvid (in containers, '
            'NVIDIA_DRIVER_CAPABILITIES=video,compute,utility)',
        )
        self.video_gpu = device.cuda if is_on_gpu else None
        inputs = self._inputs = self.make_inputs()
        self._topics = inputs.topics
        lines = [*pipeline.log_lines, *inputs.log_lines]
        parameters = self.parameters  # make_inputs() may complete them.
        if inputs.in_sets and (len(inputs.topics) > 1 or parameters.rate_hz):
            lines.append(f'synchronization: {parameters.describe_synchronization()}')
        return lines

    def _decodes_on_gpu(
        self, parameter: str, transport: str, noun: str, why_not: Callable[[], str], remedy: str
    ) -> bool:
        """Return whether images of a transport are decoded on the GPU; log why not."""
        choice = getattr(self.parameters, parameter)
        if self.parameters.image_transport != transport or choice == 'cpu':
            return False
        reason = why_not()
        if reason and choice == 'gpu':
            raise ParameterError(
                f'{parameter} is gpu, but {noun} cannot be decoded on the GPU.',
                cause=reason,
                remedy=f'Install {remedy}, or set auto.',
            )
        where = f'the CPU ({reason})' if reason else 'the GPU'
        self.get_logger().info(f'{parameter}: {noun} are decoded on {where}.')
        return not reason

    def activate(self) -> None:
        pipeline, inputs, cameras = self.pipeline, self.inputs, self.cameras
        device = pipeline.device
        inputs.activate(self.while_active)
        stream = self.while_active.own(
            TopicStream(
                self,
                self._counts,
                inputs.topics,
                inputs.start,
                inputs.publish,
                in_sets=inputs.in_sets,
                primary=inputs.primary,
                is_wanted=lambda number: cameras[0 if inputs.in_sets else number].is_wanted(),
                reset_state=pipeline.reset_state,
                complete=inputs.complete if inputs.in_sets else None,
                max_batch=min(pipeline.max_batch, self.batch_size()),
                in_flight=1 if inputs.has_state else self.parameters.frames_in_flight,
                starts_at_once=pipeline.is_asynchronous and not inputs.in_sets,
                rehearse=lambda number: cameras[0 if inputs.in_sets else number].rehearse(),
                run_ahead=pipeline.run_ahead,
                hooks=MemoryHooks(device.register, device.unregister),
            )
        )
        if inputs.has_state:
            self._offer_reset(stream)

    def _offer_reset(self, stream: TopicStream) -> None:
        def reset(request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            stream.reset()
            response.success = True
            response.message = 'The next run starts with the initial states.'
            return response

        service = self.create_service(Trigger, '~/reset', reset)
        self.own(self.while_active, self.destroy_service, service)

    def report(self, progress: Progress) -> None:
        """Log progress and keep it for the diagnostics."""
        self._progress = progress
        if self._is_due(progress):
            self.get_logger().info(printable(str(progress)))

    def _diagnostics(self) -> Mapping[str, str]:
        diagnostics = {'model': self.get_parameter('model_path').value}
        pipeline, progress = self._pipeline, self._progress
        if pipeline is not None:
            diagnostics.update(backend=pipeline.backend, decoder=pipeline.decoder.name)
            diagnostics.update(pipeline.diagnostics())
        elif progress is not None:
            diagnostics['progress'] = str(progress)
        return diagnostics

    def _why_no_result(self) -> str:
        return self._inputs.why_no_result() if self._inputs else ''

    def _warning(self) -> str:
        problem = self._pipeline.watch.problem if self._pipeline is not None else ''
        return f'impossible results: {problem}; check decoder and preprocessing' if problem else ''

    def _clear(self) -> None:
        self._pipeline = self._progress = self._inputs = None
        self.cameras = self._topics = ()
        self._counts.noun = 'image'


class CameraInputs(NodeInputs):
    """Images of the node's cameras, each run by itself, in batches of several cameras."""

    in_sets = False

    def __init__(self, node: InferenceNode) -> None:
        self._node = node
        self.topics = [
            Topic(node, camera.topic, image_codec(node, camera.topic), camera.counts)
            for camera in node.cameras
        ]

    def start(self, sets: list[list[Any]]) -> Future[Sequence[Any]]:
        return self._node.start([frame for [frame] in sets])

    def publish(self, number: int, result: Any, header: Header, values: list[Any]) -> None:
        self._node.publish(self._node.cameras[number].outputs, result, header, values[0])
        self._node.published(result)

    def ignored_parameters(self) -> set[str]:
        return {each.name for each in fields(BindingParameters)}
