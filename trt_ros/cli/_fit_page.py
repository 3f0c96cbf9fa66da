"""Page of the readings of a network, side by side, and parameter files of each."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import yaml

from trt_ros.drawing import draw
from trt_ros.drawing.panels import Panel, in_rows
from trt_ros.errors import printable
from trt_ros.families.mismatches import TASKS
from trt_ros.media import write_picture
from trt_ros.regular_file import write_text
from trt_ros.runtime.cpu.pipeline import CpuPipeline
from trt_ros.runtime.ranking import Ranked
from trt_ros.runtime.runner import Runner
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

READINGS, PICTURES, HEIGHT = 6, 3, 240
STYLE = (
    'body{font-family:sans-serif;margin:2em}img{max-width:100%}'
    'pre{background:#f4f4f4;padding:.6em}'
)


def line_of(number: int, each: Ranked) -> str:
    """Return a reading and what the pictures say about it, in one line."""
    tied = ' (tied)' if each.is_tied else ''
    line = f'{number}.{tied} {", ".join(each.candidate.texts().values())}'
    if each.problem:
        return f'{line}: impossible: {each.problem}'
    line += f': score {each.score:.3f}'
    if each.confidences:
        line += f', {len(each.confidences)} found with confidence {each.confidence:.2f}'
    return line + (f', {each.confirmed:.0%} confirmed' if each.supports else '')


def write_page(
    folder: Path,
    network: Runner,
    order: Sequence[Ranked],
    pictures: Sequence[tuple[str, np.ndarray]],
    verdict: str,
    *,
    score: float,
) -> None:
    """Write fit.html, fit.png and a parameter file per reading, or raise ParameterError."""
    rows, sections = [], []
    for number, each in enumerate([one for one in order if not one.problem][:READINGS], 1):
        pipeline: CpuPipeline[Any] = CpuPipeline(network, each.candidate.fitted)
        drawn = []
        for name, pixels in pictures[:PICTURES]:
            result = pipeline.infer(Frame.from_pixels(pixels), Thresholds(score))
            drawn.append(Panel(draw(pixels.copy(), result), Path(name).name))
        line, parameters = line_of(number, each), parameters_of(each)
        write_text(folder / f'{number}.yaml', f'# {printable(line)}\n{parameters}')
        row = in_rows([drawn], HEIGHT)
        rows.append([Panel(row, line)])
        _, data = cv2.imencode('.jpg', row, [cv2.IMWRITE_JPEG_QUALITY, 85])
        sections.append(
            f'<h2>{escape(line)}</h2><img alt="{escape(line)}" '
            f'src="data:image/jpeg;base64,{b64encode(data.tobytes()).decode()}">'
            f'<pre>{escape(parameters)}</pre>'
        )
    if rows:
        write_picture(folder / 'fit.png', in_rows(rows, rows[0][0].pixels_bgr.shape[0]))
    title = escape(f'Readings of {Path(order[0].candidate.options.model_path).name}')
    write_text(
        folder / 'fit.html',
        f'<!doctype html><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
        f'<h1>{title}</h1><p>{escape(verdict)}</p>{"".join(sections)}\n',
    )


def parameters_of(each: Ranked) -> str:
    """Return the parameters of a node for a reading, as YAML."""
    options, task = each.candidate.options, each.candidate.fitted.decoder.task
    kept = replace(options, model_path=str(Path(options.model_path).resolve()))
    names = ('model_path', 'labels', 'labels_path', 'outputs', 'crop_fraction', 'pad_value')
    values = {name: getattr(kept, name) for name in names}
    default = type(kept)()
    values = {name: value for name, value in values.items() if value != getattr(default, name)}
    values |= each.candidate.described()
    plain = {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }
    text = yaml.safe_dump(
        {'/**': {'ros__parameters': plain}}, sort_keys=False, default_flow_style=None
    )
    return f'# ros2 run trt_ros {TASKS[task].node} --ros-args --params-file THIS_FILE\n{text}'
