"""Public networks to start with, each with the command that downloads and runs it."""

from argparse import ArgumentParser, Namespace
import json
from pathlib import Path
import shlex
from typing import Any


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        'task', nargs='?', choices=('detect', 'segment', 'pose', 'classify', 'depth')
    )
    parser.add_argument('--json', action='store_true', help='print as JSON')


def run(args: Namespace) -> int:
    """Print the networks of a task, or all."""
    rows = [row for row in networks() if args.task in (None, row['task'])]
    if args.json:
        print(json.dumps(rows, indent=1))
        return 0
    for row in rows:
        print(f'{row["task"]}: {row["decoder"]}, {row["nbytes"] / 1e6:.1f} MB, {row["license"]}')
        print(f'  {command(row)}')
    return 0


def networks() -> list[dict[str, Any]]:
    """Return the networks of models.yaml, with their whole addresses."""
    import yaml

    found = yaml.safe_load(Path(__file__).with_suffix('.yaml').read_text())
    rows: list[dict[str, Any]] = found['networks']
    for row in rows:
        address = row['address'].replace('zoo/', f'{found["zoo"]}/', 1)
        row['address'] = address + (f'#sha256={row["sha256"]}' if 'sha256' in row else '')
    return rows


def command(row: dict[str, Any]) -> str:
    """Return the command that runs a network on a picture."""
    options = [f'--labels={row["labels"]}'] if 'labels' in row else []
    words = ['trt-ros', 'infer', 'photo.jpg', '--model', row['address'], '--decoder']
    return shlex.join([*words, row['decoder'], *options])
