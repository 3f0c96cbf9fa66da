"""Image sizes that outlive a process, and files that hold none."""

import json

import numpy as np
import pytest

from trt_ros.blob import Blob
from trt_ros.runtime.gpu.warm_up import MAX_RECENT, RecentImages
from trt_ros.vision.frame import Frame


def frame(width=64, height=48, encoding='bgr8'):
    nbytes = {'bgr8': 3 * width * height, 'nv12': width * height * 3 // 2}[encoding]
    step = 3 * width if encoding == 'bgr8' else width
    return Frame(np.ones(nbytes, np.uint8), width, height, step, encoding)


def geometries(recent):
    return [
        ([(each.wh, each.step, each.encoding) for each in frames], zero_copy)
        for _, frames, zero_copy in recent.frames()
    ]


def test_images_are_remembered_newest_first(tmp_path):
    recent = RecentImages.open(tmp_path, '0123')
    assert geometries(recent) == []
    for _ in range(2):
        recent.add([frame()], False)
        recent.add([frame(32, 16, 'nv12'), frame()], True)
    recent.wait()
    again = RecentImages.open(tmp_path, '0123')
    assert geometries(again) == [
        ([((32, 16), 32, 'nv12'), ((64, 48), 192, 'bgr8')], True),
        ([((64, 48), 192, 'bgr8')], False),
    ]
    assert again.zero_copy_nbytes() == 3 * 64 * 48
    assert geometries(RecentImages.open(tmp_path, '4567')) == []


def test_only_last_images_are_remembered(tmp_path):
    recent = RecentImages.open(tmp_path, '0123')
    for width in range(10, 20):
        recent.add([frame(width)], False)
    recent.wait()
    widths = [frames[0][0][0] for frames, _ in geometries(RecentImages.open(tmp_path, '0123'))]
    assert widths == [19, 18, 17, 16][:MAX_RECENT]
    assert recent.zero_copy_nbytes() == 0


def test_engine_without_key_remembers_for_this_process_only(tmp_path):
    recent = RecentImages.open(tmp_path, '')
    recent.add([frame()], False)
    recent.wait()
    assert len(geometries(recent)) == 1
    assert list(tmp_path.iterdir()) == []


def test_huge_image_is_not_remembered():
    recent = RecentImages(None)
    huge = Frame(np.zeros(1 << 29, np.uint8), 1 << 14, 1 << 14, 1 << 15, 'mono16')
    recent.add([huge], False)
    assert geometries(recent) == []


@pytest.mark.parametrize(
    'content',
    [
        b'',
        b'{',
        b'7',
        json.dumps([[[[64, 48]], True]]).encode(),
        json.dumps([[[[64, 48, 192, 'bgr9', False]], True]]).encode(),
        json.dumps([[[[64, 1 << 40, 192, 'bgr8', False]], True]]).encode(),
        json.dumps([[[[64, -48, 192, 'bgr8', False]], True]]).encode(),
    ],
)
def test_unusable_file_is_ignored(tmp_path, content):
    blob = Blob(tmp_path / 'images.json')
    blob.save(content)
    recent = RecentImages(blob)
    assert (geometries(recent), recent.zero_copy_nbytes()) == ([], 0)


def test_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / '.images').write_text('a file')
    recent = RecentImages.open(tmp_path, '0123')
    recent.add([frame()], False)
    recent.wait()
    assert len(geometries(recent)) == 1
