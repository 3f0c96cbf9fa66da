"""Serialized point clouds equal those of rclpy."""

import numpy as np
import pytest

pytest.importorskip('rclpy')

from rclpy.serialization import deserialize_message
from sensor_msgs.msg import PointCloud2

from trt_ros.ros.dds.cdr_points import UINT32, XYZ, PointWriter


@pytest.mark.parametrize('frame_id', ['', 'a', 'ab', 'abc', 'camera_depth_optical_frame'])
@pytest.mark.parametrize('cloud_wh', [(0, 1), (5, 1), (3, 2)])
def test_a_cloud_is_read_by_rclpy(frame_id, cloud_wh):
    writer = PointWriter((*XYZ, ('object', UINT32, 1)))
    for repeat in range(2):
        points = writer.begin((-2, 999), frame_id, cloud_wh)
        points[:] = np.arange(points.size, dtype=np.float32).reshape(points.shape) + repeat
        assert points.flags.aligned
        message = deserialize_message(writer.message.tobytes(), PointCloud2)
        assert (message.header.stamp.sec, message.header.stamp.nanosec) == (-2, 999)
        assert message.header.frame_id == frame_id
        assert (message.width, message.height) == cloud_wh
        assert [(f.name, f.offset, f.datatype, f.count) for f in message.fields] == [
            ('x', 0, 7, 1),
            ('y', 4, 7, 1),
            ('z', 8, 7, 1),
            ('object', 12, 6, 1),
        ]
        assert (message.point_step, message.row_step) == (16, 16 * cloud_wh[0])
        assert not message.is_bigendian and not message.is_dense
        read = np.frombuffer(message.data, '<f4').reshape(points.shape)
        assert np.array_equal(read, points)
