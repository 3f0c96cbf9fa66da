"""Registry of the feeds: one class per kind of network input."""

from collections.abc import Mapping

from trt_ros.model.feeds.base import Feed
from trt_ros.model.feeds.concat import ConcatFeed
from trt_ros.model.feeds.constant import ConstantFeed
from trt_ros.model.feeds.image import ImageFeed, ImagesFeed
from trt_ros.model.feeds.message import MESSAGES, MessageFeed, TransformFeed
from trt_ros.model.feeds.numbered import CounterFeed, NoiseFeed
from trt_ros.model.feeds.rows import CountFeed, MaskFeed
from trt_ros.model.feeds.state import StateFeed
from trt_ros.model.feeds.tensor import TensorFeed

#: Feeds by kind. A new kind is a class here and, to run on a GPU, one for runtime/gpu/inputs.py.
FEEDS: Mapping[str, type[Feed]] = {
    **{
        feed.kind: feed
        for feed in (
            *(ImageFeed, ImagesFeed, TensorFeed, StateFeed, ConstantFeed, CounterFeed, NoiseFeed),
            *(MaskFeed, CountFeed, TransformFeed, ConcatFeed),
        )
    },
    **dict.fromkeys(MESSAGES, MessageFeed),
}
#: Feeds by network input, or by part of one; those of bindings in their order.
Feeds = Mapping[str, Feed]
