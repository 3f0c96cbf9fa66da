"""
From camera process to detection subscriber through the node on a GPU, beside an echo of the image.

    python benchmarks/gpu_node.py MODEL IMAGE [--size 1920x1080] [--rates 30 120] [--jpeg]

Needs ROS 2; uses the processes of cpu_overhead.py.
"""

import argparse
from pathlib import Path
import sys
import tempfile

from cpu_overhead import between_processes, print_table
import cv2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    parser.add_argument('model', type=Path)
    parser.add_argument('image', type=Path)
    parser.add_argument('--size', default='1920x1080')
    parser.add_argument('--rates', type=float, nargs='+', default=[30.0, 120.0], metavar='HZ')
    parser.add_argument('--seconds', type=float, default=4.0, help='of each of two runs a rate')
    parser.add_argument('--jpeg', action='store_true', help='JPEG images, too')
    args = parser.parse_args()
    width, height = map(int, args.size.split('x'))
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / 'image.png'
        pixels = cv2.resize(cv2.imread(str(args.image)), (width, height))
        cv2.imwrite(str(image), pixels)
        jpeg = image.with_suffix('.jpg') if args.jpeg else None
        if jpeg:
            cv2.imwrite(str(jpeg), pixels, [cv2.IMWRITE_JPEG_QUALITY, 90])
        for rate_hz in args.rates:
            frames = int(rate_hz * args.seconds)
            found = between_processes(args.model, image, frames, rate_hz, jpeg)
            print_table(
                f'{args.model.stem}, {args.size}, {found["sent"]} at {rate_hz:g} Hz',
                found['milliseconds'],
            )
            sys.stdout.flush()
    return 0


if __name__ == '__main__':
    sys.exit(main())
