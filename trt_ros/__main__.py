"""Entry point of `python -m trt_ros VERB`, the same as `trt-ros VERB`."""

import sys

from trt_ros.cli import main

if __name__ == '__main__':
    sys.exit(main())
