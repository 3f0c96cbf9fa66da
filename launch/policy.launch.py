"""A control policy on topics of observations."""

from trt_ros.launching.task_launch import task_launch
from trt_ros.nodes.policy import PolicyNode


def generate_launch_description():
    """Return the launch description."""
    return task_launch(
        PolicyNode,
        {
            'joint_states': 'Topic of the joint states.',
            'imu': 'Topic of the IMU.',
            'odom': 'Topic of the odometry.',
            'cmd_vel': 'Topic of the velocity command.',
            'estop': 'Topic of the emergency stop.',
        },
    )
