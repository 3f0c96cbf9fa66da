"""detector.launch.py with the defaults of config/jetson.yaml, whatever machine this is."""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import IncludeLaunchDescription


def generate_launch_description():
    detector = str(Path(__file__).with_name('detector.launch.py'))
    return LaunchDescription(
        [IncludeLaunchDescription(detector, launch_arguments=[('platform', 'jetson')])]
    )
