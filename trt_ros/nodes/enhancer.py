"""Node that publishes an image that a network makes of an image."""

from dataclasses import dataclass

from std_msgs.msg import Header

from trt_ros.families.registry import ENHANCERS
from trt_ros.nodes.inference import Camera, InferenceNode, InferenceParameters
from trt_ros.results.arrays import Picture
from trt_ros.ros.messages import ImageSender
from trt_ros.runtime.options import PipelineOptions
from trt_ros.vision.frame import Frame


@dataclass(frozen=True)
class EnhancerParameters(InferenceParameters, PipelineOptions):
    """Parameters of the enhancer node, which are also the options of its pipeline."""


class EnhancerNode(InferenceNode):
    """A node that publishes enhanced images."""

    Parameters = EnhancerParameters
    families = ENHANCERS

    def advertise(self, camera: Camera) -> ImageSender:
        return camera.images('image')

    def publish(self, outputs: ImageSender, result: Picture, header: Header, frame: Frame) -> None:
        is_bgr = self.pipeline.preprocess.channel_order == 'bgr'
        height, width = result.pixels.shape[:2]
        pixels = outputs.begin(header, (width, height))
        pixels[:] = result.pixels if is_bgr else result.pixels[..., ::-1]
        outputs.send()
