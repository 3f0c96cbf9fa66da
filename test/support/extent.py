"""The extent of the tests that repeat: brief by default, exhaustive on demand."""

import os

#: TRT_ROS_TEST_EXHAUSTIVE=1 repeats as often as the tests were first proven with.
IS_EXHAUSTIVE = os.environ.get('TRT_ROS_TEST_EXHAUSTIVE', '') not in ('', '0')
