"""Compressed images, and encodings that only cv_bridge knows, as frames."""

import sys
from types import ModuleType

import cv2
import numpy as np
import pytest

from trt_ros.errors import BadFrameError
from trt_ros.ros.dds.cdr import EncodedView, ImageView
from trt_ros.ros.frames import to_frame
from trt_ros.vision.frame import to_color

RED = np.full((8, 10, 3), (255, 0, 0), np.uint8)
BLUE_FIRST, GRAY = RED[..., ::-1], RED[..., 0]
MOSAIC = np.zeros((8, 10), np.uint8)
MOSAIC[::2, ::2] = 255  # Of red.
JPEG = cv2.imencode('.jpg', BLUE_FIRST)[1].tobytes()
SIZE_AT = JPEG.index(b'\xff\xc0') + 5  # Of height and width.
PNG = cv2.imencode('.png', RED)[1].tobytes()
PIXELS_AT = PNG.index(b'IDAT') + 4


def compressed(format_, data):
    return EncodedView((0, 0), 'camera', format_, np.frombuffer(data, np.uint8))


@pytest.mark.parametrize(
    ('format_', 'suffix', 'pixels'),
    [
        ('jpeg', '.jpg', BLUE_FIRST),
        ('png', '.png', BLUE_FIRST),
        ('bgr8; jpeg compressed bgr8', '.jpg', BLUE_FIRST),
        ('rgb8; jpeg compressed bgr8', '.jpg', BLUE_FIRST),
        ('rgb8; png compressed rgb8', '.png', RED),
        ('bgra8; png compressed bgra8', '.png', np.dstack([BLUE_FIRST, GRAY])),
        ('rgba8; png compressed rgba8', '.png', np.dstack([RED, GRAY])),
        ('mono8; jpeg compressed ', '.jpg', GRAY),
        ('mono16; png compressed ', '.png', GRAY.astype(np.uint16) << 8),
        ('bgr16; png compressed bgr16', '.png', BLUE_FIRST.astype(np.uint16) << 8),
        ('bayer_rggb8; png compressed bayer_rggb8', '.png', MOSAIC),
        ('', '.png', BLUE_FIRST),
    ],
)
def test_compressed_images_have_their_colors_whatever_they_are_stored_as(format_, suffix, pixels):
    data = cv2.imencode(suffix, pixels, [cv2.IMWRITE_JPEG_QUALITY, 100])[1].tobytes()
    found = to_color(to_frame(compressed(format_, data)), 'rgb').astype(int)
    assert np.abs(found - (255 if 'mono' in format_ else RED)).max() <= 2


@pytest.mark.parametrize(
    ('kind', 'format_', 'data'),
    [
        ('undecodable image', 'jpeg', JPEG[:SIZE_AT] + b'\xff' * 4 + JPEG[SIZE_AT + 4 :]),
        ('undecodable image', 'png', PNG[:PIXELS_AT] + b'\xff' * 4 + PNG[PIXELS_AT + 4 :]),
        ('unknown compression', '16UC1; compressedDepth png', JPEG),
        ('depth image', '16UC1; png compressed ', cv2.imencode('.png', GRAY.astype('u2'))[1]),
    ],
)
def test_an_invalid_compressed_image_is_refused_by_cause(kind, format_, data):
    with pytest.raises(BadFrameError) as refused:
        to_frame(compressed(format_, data))
    assert refused.value.kind == kind


PADDED = np.array([[0, 127, 255, 9], [255, 127, 0, 9]], np.int32)
IMAGE = ImageView(
    (1, 2),
    'camera',
    height=2,
    width=3,
    encoding='32SC1',
    is_bigendian=0,
    step=16,
    data=PADDED.view(np.uint8).reshape(-1),
)


@pytest.fixture
def cv_bridge(monkeypatch):
    """Install a cv_bridge that makes integers gray, and nothing else."""
    pytest.importorskip('sensor_msgs')

    class CvBridge:
        def imgmsg_to_cv2(self, message, desired_encoding):
            assert desired_encoding == 'bgr8'
            if message.encoding != '32SC1':
                raise RuntimeError(f'no conversion from {message.encoding}')
            values = np.frombuffer(message.data, np.int32).reshape(message.height, message.width)
            return np.repeat(values.astype(np.uint8)[..., None], 3, axis=2)

    module = ModuleType('cv_bridge')
    module.CvBridge = CvBridge
    monkeypatch.setitem(sys.modules, 'cv_bridge', module)


def test_unsupported_encodings_are_left_to_cv_bridge_which_may_refuse_them(cv_bridge):
    color = to_color(to_frame(IMAGE), 'rgb')
    assert color.tolist() == np.repeat(PADDED[:, :3, None], 3, axis=2).tolist()
    image = IMAGE._replace(encoding='64FC7')
    with pytest.raises(BadFrameError, match=r'(?s)64FC7.*no conversion.*Publish one of'):
        to_frame(image)


@pytest.mark.parametrize('encoding', ['16UC1', '32FC1'])
def test_depth_is_refused_although_cv_bridge_would_make_it_gray(cv_bridge, encoding):
    with pytest.raises(BadFrameError, match=r'(?s)images, not of pictures.*Use the color'):
        to_color(to_frame(IMAGE._replace(encoding=encoding)), 'rgb')


def test_without_cv_bridge_an_encoding_says_that_it_needs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, 'cv_bridge', None)
    with pytest.raises(BadFrameError, match="'32SC1' needs cv_bridge") as refused:
        to_frame(IMAGE)
    assert refused.value.kind == 'unknown encoding'
