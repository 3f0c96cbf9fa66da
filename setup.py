"""What ament expects beside the Python package; setup.cfg has the rest."""

from glob import glob

from setuptools import setup

setup(
    data_files=[
        ('share/ament_index/resource_index/packages', ['resource/trt_ros']),
        (
            'share/ament_index/resource_index/rclcpp_components',
            ['resource/rclcpp_components/trt_ros'],
        ),
        ('bin', ['resource/bin/trt-ros']),  # Console scripts go to lib/trt_ros, not on PATH.
        ('share/trt_ros', ['package.xml']),
        ('share/trt_ros/config', glob('config/*')),
        ('share/trt_ros/launch', glob('launch/*.launch.py')),
        # A prefix in which `ros2 component standalone` finds our container.
        *(
            (f'share/trt_ros/{folder}', glob(f'resource/{folder}/*'))
            for folder in (
                'standalone/lib/rclcpp_components',
                'standalone/share/ament_index/resource_index/packages',
            )
        ),
    ]
)
