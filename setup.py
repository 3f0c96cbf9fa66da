"""The library and `trt-ros` for pip; CMakeLists.txt builds the ROS package."""

from setuptools import Distribution, setup


class Library(Distribution):
    """The package without its node executables, which `ros2 run` would not find in bin."""

    def parse_config_files(self, *args, **kwargs):
        """Read setup.cfg, which names the executables for colcon and ./dev."""
        super().parse_config_files(*args, **kwargs)
        self.entry_points['console_scripts'] = ['trt-ros = trt_ros.cli:main']


setup(distclass=Library)
