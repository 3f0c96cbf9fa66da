"""A detector with the defaults of config/jetson.yaml on any machine."""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import IncludeLaunchDescription


def generate_launch_description():
    """Return the launch description."""
    detector = str(Path(__file__).with_name('detector.launch.py'))
    return LaunchDescription(
        [IncludeLaunchDescription(detector, launch_arguments=[('platform', 'jetson')])]
    )
