"""Command line of the demo, `./dev demo`."""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
import os
from pathlib import Path
import signal
import sys

from demo.domain import reserved_domain
from demo.robot.world import TARGETS
from trt_ros.errors import TrtRosError


def main(arguments: list[str] | None = None) -> int:
    """
    Run the demo.

    :returns: 0; 1 when a node failed or too little was detected; 130 when interrupted.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    is_robot = arguments[:1] == ['robot']
    parser = ArgumentParser(
        prog='dev demo robot' if is_robot else 'dev demo',
        description='Let a simulated robot find an object and walk to it.'
        if is_robot
        else 'Run the detector on a moving scene and compare the results with the truth; '
        '`dev demo robot --help`: the demo of a robot.',
        formatter_class=ArgumentDefaultsHelpFormatter,
    )
    if is_robot:
        parser.add_argument('--find', choices=TARGETS, default='ball', help='object to walk to')
        parser.add_argument('--seed', type=int, default=1, help='which random world')
    else:
        parser.add_argument(
            '--seconds',
            type=float,
            default=10.0,
            help='duration in seconds, above 0, at most 3600',
        )
    parser.add_argument(
        '--output',
        type=Path,
        default=Path('demo_output'),
        help='folder of the pictures and the logs',
    )
    args = parser.parse_args(arguments[is_robot:])
    if not is_robot and not 0 < args.seconds <= 3600:
        parser.error('--seconds must be above 0 and at most 3600')
    if is_robot and args.seed < 0:
        parser.error('--seed must be at least 0')
    for number in (signal.SIGTERM, signal.SIGHUP):  # So that the nodes are stopped, too.
        signal.signal(number, signal.default_int_handler)
    try:
        with reserved_domain() as domain:
            set_up_transport(domain)
            try:
                # Imported late, so that --help works without ROS.
                if is_robot:
                    # Images are rays that MuJoCo casts: it is not to look for OpenGL and windows.
                    os.environ.setdefault('MUJOCO_GL', 'disabled')
                    from demo.robot.show import show_robot
                else:
                    from demo.show import show
            except ImportError as error:
                raise TrtRosError(
                    f'The demo needs {"MuJoCo" if error.name == "mujoco" else "ROS 2"}.',
                    cause=str(error),
                    remedy='Run ./dev demo robot.'
                    if error.name == 'mujoco'
                    else 'Run ./dev demo.',
                ) from error
            if is_robot:
                print(show_robot(args.seed, args.find, args.output))
            else:
                print(show(args.seconds, args.output))
    except TrtRosError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('Stopped.', file=sys.stderr)
        return 130
    return 0


def set_up_transport(domain: int) -> None:
    """Set the ROS domain, restrict discovery to this machine, enlarge shared memory."""
    os.environ['ROS_DOMAIN_ID'] = str(domain)
    if os.environ.get('ROS_DISTRO') == 'humble':
        os.environ['ROS_LOCALHOST_ONLY'] = '1'
    else:
        os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
    # Fast DDS loses parts of images larger than its shared memory; before 3.0 it was FASTRTPS.
    for name in ('FASTDDS_DEFAULT_PROFILES_FILE', 'FASTRTPS_DEFAULT_PROFILES_FILE'):
        os.environ.setdefault(name, str(Path(__file__).with_name('fastdds.xml')))


if __name__ == '__main__':
    sys.exit(main())
