"""Output of `trt-ros bench`: tables, charts, and files of all times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import csv
from pathlib import Path
import sys
from typing import Any

import numpy as np

from trt_ros.errors import printable

STEPS = ('preprocess', 'network', 'decode')
LAYERS = 20  # The slowest ones are printed and drawn.


def print_cpu(found: Mapping[str, Any]) -> None:
    """Print the times of ONNX Runtime."""
    in_flight = found['frames_in_flight']
    _heading(found, f' with {in_flight} in flight' if in_flight > 1 else '')
    _row('image in hand to result', found['host_ms']['frame'])
    for name in STEPS:
        _row(f'  {name}', found['host_ms'][name])
    _print_layers(found)


def print_gpu(found: Mapping[str, Any]) -> None:
    """Print the times of TensorRT."""
    _heading(found, f' with {found["frames_in_flight"]} in flight')
    for name, summary in found['stages_ms'].items():
        _row(f'GPU, separate steps: {name}', summary)
    _row('GPU, all steps', found['graph_ms']['gpu'])
    _row('wall, launch to result', found['graph_ms']['wall'])
    _row('  without GPU', found['wall_minus_gpu_ms'])
    _row('wall, image in hand to result', found['host_ms']['frame'])
    _row('  copy of the image in', found['host_ms']['bring in'])
    _row('one plain copy of the image', found['host_ms']['plain copy'])
    for kind, owners in found['memory'].items():
        text = ', '.join(f'{owner} {nbytes / 1e6:.1f}' for owner, nbytes in owners.items())
        print(f'{kind} memory (MB): {text}, total {sum(owners.values()) / 1e6:.1f}')
    print(f'device memory peak (MB): {found["memory_peak"]["total"] / 1e6:.1f}')
    for name, value in found['gpu_state'].items():
        print(f'{name}: {value or "none"}')
    if found['watts'] is not None:
        print(f'power (W): {found["watts"]:.0f}')
    if found['roofline']:
        print(found['roofline'])
    _print_layers(found)


def _heading(found: Mapping[str, Any], condition: str) -> None:
    batch = f' in batches of {found["batch"]}' if found['batch'] > 1 else ''
    rate = f'{found["frames_per_second"]:.0f} frames/s'
    print(f'\n{printable(found["image"])}{batch}{_precision(found)}: {rate}{condition}')
    print(f'{"µs":34}{"p50":>11}{"p90":>11}{"p99":>11}{"max":>11}')


def _precision(found: Mapping[str, Any]) -> str:
    return f', {found["precision"]}' if 'precision' in found else ''


def _row(name: str, summary: Mapping[str, float]) -> None:
    cells = ''.join(f'{summary[key] * 1e3:11.1f}' for key in ('p50', 'p90', 'p99', 'max'))
    print(f'{name:34}{cells}')


def _print_layers(found: Mapping[str, Any]) -> None:
    for name, ms in slowest_layers(found.get('layers_ms', {})):
        print(f'  {ms * 1e3:8.1f} µs  {printable(name)[:80]}')
    sys.stdout.flush()


def slowest_layers(layers_ms: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return name and time in ms of the slowest layers, slowest first."""
    return sorted(layers_ms.items(), key=lambda item: -item[1])[:LAYERS]


def print_precisions(results: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per precision and image size, and which precision is the fastest."""
    for image in dict.fromkeys(found['image'] for found in results):
        rows = [found for found in results if found['image'] == image]
        print(f'\n{printable(image)}')
        print(
            f'{"precision":10}{"GPU p50 (µs)":>14}{"p99 (µs)":>10}{"frames/s":>10}'
            f'{"GPU (MB)":>10}{"max error":>11}{"cosine":>10}{"power (W)":>11}'
        )
        for found in rows:
            gpu = found['graph_ms']['gpu']
            error, watts = found['agreement'], found['watts']
            print(
                f'{found["precision"]:10}{gpu["p50"] * 1e3:14.1f}{gpu["p99"] * 1e3:10.1f}'
                f'{found["frames_per_second"]:10.0f}'
                f'{sum(found["memory"]["device"].values()) / 1e6:10.1f}'
                + (
                    f'{error["max_error"]:11.3g}{error["cosine"]:10.6f}'
                    if error
                    else f'{"?":>11}{"?":>10}'
                )
                + (f'{"?":>11}' if watts is None else f'{watts:11.0f}')
            )
        print(fastest(rows))


def fastest(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one sentence on the fastest of several precisions of one network."""
    first = rows[0]
    best = min(rows, key=lambda found: found['graph_ms']['gpu']['p50'])
    if best is first:
        return f'{first["precision"]} is the fastest here.'
    factor = first['graph_ms']['gpu']['p50'] / best['graph_ms']['gpu']['p50']
    text = f'{best["precision"]} is {factor:.2f} times as fast as {first["precision"]}'
    if best['agreement']:
        text += f'; cosine similarity to ONNX Runtime {best["agreement"]["cosine"]:.6f}'
    return f'{text}.'


def export_times(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write the times of every frame as CSV: one line per frame, one column per step, in ms."""
    steps = list(dict.fromkeys(step for found in results for step in found['times_ms']))
    with path.open('w', newline='', encoding='utf-8') as file:
        table = csv.writer(file)
        table.writerow(['image', 'precision', 'frame number', *(f'{step} (ms)' for step in steps)])
        for found in results:
            columns = [found['times_ms'].get(step, []) for step in steps]
            for number in range(max(map(len, columns))):
                table.writerow(
                    [
                        found['image'],
                        found.get('precision', ''),
                        number,
                        *(f'{each[number]:.4f}' if each else '' for each in columns),
                    ]
                )


def plot_layers(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Draw the times of the slowest layers as bars, one panel per result."""
    import cv2

    from trt_ros.media import write_picture

    width, line, left = 1100, 20, 560
    panels = []
    for found in results:
        rows = slowest_layers(found['layers_ms'])
        total = sum(found['layers_ms'].values())
        panel = np.full((line * (len(rows) + 3), width, 3), 255, np.uint8)

        def write(text: str, x: int, row: int, panel: np.ndarray = panel) -> None:
            at = (x, round(line * (row + 0.75)))
            font = cv2.FONT_HERSHEY_SIMPLEX
            cv2.putText(panel, text, at, font, 0.42, (0, 0, 0), 1, cv2.LINE_AA)

        write(f'{found["image"]}{_precision(found)}: {len(found["layers_ms"])} layers, us', 10, 0)
        for number, (name, ms) in enumerate(rows, 1):
            # Names of fused layers are long; their end is the most specific.
            write(name if len(name) < 72 else f'..{name[-70:]}', 10, number)
            length = round((width - left - 170) * ms / max(rows[0][1], 1e-9))
            top = line * number + 4
            cv2.rectangle(
                panel, (left, top), (left + length, top + line - 8), (180, 100, 30), cv2.FILLED
            )
            share = 100 * ms / max(total, 1e-9)
            write(f'{ms * 1e3:.1f} ({share:.0f} %)', left + length + 8, number)
        panels.append(panel)
    write_picture(path, np.concatenate(panels))


def plot_frames(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Plot the latency of each frame, one panel per result, with median and p99."""
    import cv2

    from trt_ros.media import write_picture

    width, height, margin = 900, 260, 60
    picture = np.full((height * len(results), width, 3), 255, np.uint8)
    for number, found in enumerate(results):
        title, times = f'{found["image"]}{_precision(found)}', np.array(found['frame_times_ms'])
        top = number * height
        top_value = max(float(times.max()), 1e-6) * 1.1
        x = np.linspace(margin, width - margin, len(times))
        y = top + height - margin - times / top_value * (height - 2 * margin)
        points = np.stack([x, y], axis=1).round().astype(np.int32)
        cv2.polylines(picture, [points.reshape(-1, 1, 2)], False, (180, 100, 30), 1, cv2.LINE_AA)
        p50, p99 = np.percentile(times, [50, 99])
        # Below and above their lines, which may be close to each other.
        for value, name, offset in ((p50, 'p50', 13), (p99, 'p99', -4)):
            at = round(top + height - margin - value / top_value * (height - 2 * margin))
            cv2.line(picture, (margin, at), (width - margin, at), (160, 160, 160), 1)
            cv2.putText(
                picture,
                f'{name} {value * 1e3:.0f} us',
                (width - margin - 120, at + offset),
                cv2.FONT_HERSHEY_SIMPLEX,
                0.4,
                (60, 60, 60),
                1,
                cv2.LINE_AA,
            )
        cv2.putText(
            picture,
            f'{title}: image in hand to result, {len(times)} frames',
            (margin, top + 30),
            cv2.FONT_HERSHEY_SIMPLEX,
            0.5,
            (0, 0, 0),
            1,
            cv2.LINE_AA,
        )
    write_picture(path, picture)
