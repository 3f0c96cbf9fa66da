"""Parameters of subscriptions to images and other inputs, and of their synchronization."""

from dataclasses import dataclass

from trt_ros.errors import ParameterError
from trt_ros.ros.parameters import mutable_param, param
from trt_ros.vision.pixel_limit import PixelLimit


@dataclass(frozen=True)
class InputParameters:
    """Parameters of subscriptions to images and what belongs to them."""

    qos_reliability: str = param(
        'auto',
        'Reliability of the image subscriptions; best_effort matches every publisher; auto is '
        'reliable while all publishers are reliable and best_effort otherwise.',
        choices=('auto', 'best_effort', 'reliable'),
    )
    qos_depth: int = param(
        1,
        'Queue depth of the image subscriptions in messages; only the newest image is processed.',
        between=(1, 1000),
    )
    max_rate_hz: float = mutable_param(
        0.0, 'Maximum rate of processed images in Hz; 0.0 sets no limit.', zero_or=(0.001, 1000.0)
    )
    publish_latency: bool = param(
        False,
        "Whether to publish the time from each image's stamp to its result on ~/latency, in "
        'milliseconds.',
    )


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class ImageInputParameters(InputParameters, PixelLimit):
    """Parameters of image subscriptions."""

    image_transport: str = param(
        'raw',
        'Image transport: raw subscribes to `image`, compressed to `image/compressed`, video to '
        'packets of H.264, H.265 or AV1 on `image/video`, `image/ffmpeg`, `image/foxglove` or '
        '`image`, the first that is published; needs the Python package av.',
        choices=('raw', 'compressed', 'video'),
    )


@dataclass(frozen=True)
class ImageTopicsParameters(ImageInputParameters):
    """Parameters of image subscriptions to one or several cameras."""

    image_topics: tuple[str, ...] = param(
        (),
        'Image topics, one per camera, with results on ~/TOPIC/...; empty subscribes to '
        '`image` only.',
    )
    batch_wait_ms: float = mutable_param(
        0.0,
        'Maximum time in milliseconds to wait for images of the other cameras before running a '
        'partial batch; 0.0 runs at once.',
        between=(0.0, 1000.0),
    )
    jpeg_decoder: str = param(
        'auto',
        'Where JPEG images of image_transport compressed are decoded: gpu needs nvImageCodec; '
        'auto uses the CPU without it.',
        choices=('auto', 'cpu', 'gpu'),
    )
    video_decoder: str = param(
        'auto',
        'Where packets of image_transport video are decoded: gpu needs an NVIDIA decoder; auto '
        'uses the CPU without it.',
        choices=('auto', 'cpu', 'gpu'),
    )
    max_batch_size: int = param(
        4,
        'Maximum number of images of several cameras per batch; larger batches need more GPU '
        'memory.',
        between=(1, 64),
    )

    def batch_size(self) -> int:
        """Return the maximum number of images per batch."""
        cameras = len(self.image_topics) or 1
        return min(self.max_batch_size, cameras)


@dataclass(frozen=True)
class SynchronizationParameters:
    """Parameters of the synchronization of several inputs."""

    approximate_sync: bool = param(
        False,
        'Whether messages of several inputs meet if their stamps are close; false needs equal '
        'stamps.',
    )
    approximate_sync_tolerance_seconds: float = param(
        0.01,
        'Maximum difference of the stamps of one set in seconds, for approximate_sync; less than '
        'half the period of the slowest input.',
        between=(1e-6, 10.0),
    )
    queue_size: int = param(
        5,
        'Maximum number of messages per input that wait for messages of the other inputs.',
        between=(1, 1000),
    )

    @property
    def rate_hz(self) -> float:
        """Rate of samples in Hz; 0.0 matches messages by stamp."""
        return 0.0

    def tolerance_ns(self) -> int:
        """Return the maximum difference of the stamps of one set in nanoseconds."""
        if not self.approximate_sync:
            return 0
        return round(1e9 * self.approximate_sync_tolerance_seconds)

    def describe_synchronization(self) -> str:
        """Return the synchronization in words; raises ParameterError for contradictions."""
        if self.rate_hz and self.approximate_sync:
            raise ParameterError(
                f'approximate_sync is true, but rate_hz is {self.rate_hz}.',
                cause='Inputs are either matched by stamp or sampled at a rate.',
                remedy='Set approximate_sync to false, or rate_hz to 0.0.',
            )
        if self.rate_hz:
            return f'newest messages, sampled at {self.rate_hz:g} Hz'
        if self.approximate_sync:
            return f'stamps at most {self.approximate_sync_tolerance_seconds:g} s apart'
        return 'equal stamps'
