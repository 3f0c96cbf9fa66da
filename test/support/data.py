"""Data that is too large for the repository."""

import os
from pathlib import Path

#: The folder that TRT_ROS_TEST_DATA names, or shared/data beside the checkout.
DATA = Path(
    os.environ.get('TRT_ROS_TEST_DATA', Path(__file__).resolve().parents[3] / 'shared' / 'data')
)
