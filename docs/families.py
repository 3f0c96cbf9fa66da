"""Write the tables of docs/models.md that the families declare: python docs/families.py."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
import re
from typing import Any

from trt_ros.families.family import IMAGENET_PREPROCESS, Family
from trt_ros.families.layout import SYMBOLS, Layout
from trt_ros.families.mismatches import TASKS
from trt_ros.families.registry import ALL_FAMILIES, DETECTORS, EMBEDDINGS, ENHANCERS

PAGE = Path(__file__).parent / 'models.md'
DETECTING = ('`decoder`', 'networks', 'outputs')
MAX_LAYOUTS, MAX_COLUMNS = 4, 140
EXPORTING = ('`decoder`', 'how to export')
OTHERS = ('`decoder`', 'networks', 'node', 'outputs')
PREPROCESSING = ('`decoder`', 'resize', 'values')


def recognized_by(family: Family[Any]) -> str:
    """Return the outputs of a family, one of several after the other, and further evidence."""
    layouts = [each for each in family.layouts if not each.by_name and not each.is_cut]
    texts = list(dict.fromkeys(map(_outputs, layouts)))
    marks = {
        'an input': [each.input for each in layouts if each.input],
        'a task': [each.task for each in layouts if each.task],
        'metadata of': [family.exporter] * (family.exporter in ('Ultralytics', 'YOLOv5')),
        'named': family.output_names,
    }
    listed = [
        f'{mark} {" or ".join(f"`{name}`" for name in dict.fromkeys(names))}'
        for mark, names in marks.items()
        if names
    ]
    more = ['others'] if len(texts) > MAX_LAYOUTS else []
    return '; '.join([', or '.join([*texts[:MAX_LAYOUTS], *more]), *listed])


def _outputs(layout: Layout) -> str:
    """Return outputs and rows of a layout, as of any input."""
    rows = layout.rows
    sizes = {axis: axis.lower() for axis in 'HWhw'}
    if rows.strides and not layout.any_rows:
        per_cell = f'{rows.per_cell[0]} × ' if rows.per_cell != (1,) else ''
        sizes['N'] = per_cell + 'cells' if len(rows.per_cell) == 1 else 'anchors'
    text = ' with '.join(out.describe(sizes) for out in layout.outputs)
    return re.sub(r'\(.*?\)', _shorten, text)


def _shorten(shape: re.Match[str]) -> str:
    """Write symbols for words in a shape."""
    text = shape[0].replace('*', '×')
    for symbol, word in SYMBOLS.items():
        text = text.replace(word, symbol)
    return text


def row(family: Family[Any], columns: Sequence[str] = DETECTING) -> str:
    """Return the rows of a family in a table of outputs: one that continues where it is long."""
    first, *others = re.split(r' (?=with )|(?<=, or) |(?<=;) ', recognized_by(family))
    cells = {
        '`decoder`': f'`{family.name}`',
        'networks': family.networks,
        'node': f'`{TASKS[family.task].node}`',
        'outputs': first,
    }
    lines = [_line(cells[column] for column in columns)]
    for text in others:
        joined = f'{lines[-1][:-2]} {text} |'
        if len(joined) > MAX_COLUMNS:
            lines.append('| ' * len(columns) + f'{text} |')
        else:
            lines[-1] = joined
    return '\n'.join(lines)


def _line(cells: Iterable[str]) -> str:
    return '| ' + ' | '.join(cells) + ' |'


def grouped(cells: Iterable[tuple[Family[Any], tuple[str, ...]]]) -> list[str]:
    """Return a row for all families of equal cells, at most five in a row."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for family, texts in cells:
        groups.setdefault(texts, []).append(f'`{family.name}`')
    return [
        _line((', '.join(names[start : start + 5]), *texts))
        for texts, names in groups.items()
        for start in range(0, len(names), 5)
    ]


def _preprocess(fields: Mapping[str, Any]) -> tuple[str, str]:
    resize = str(fields['resize']).replace('_topleft', ', top left')
    if 'pad_value' in fields:
        resize += f', padded with {fields["pad_value"]}'
    if 'crop_fraction' in fields:
        resize += f' of {fields["crop_fraction"]}'
    mean, std = fields.get('mean'), fields.get('std')
    values = ['BGR'] * (fields['channel_order'] == 'bgr')
    values.append('0 to 255' if fields['scale'] == 1 else '0 to 1')
    if mean == IMAGENET_PREPROCESS['mean']:
        values.append('ImageNet mean and standard deviation')
    elif mean is not None and std is not None:
        values.append(f'mean {_numbers(mean)}, standard deviation {_numbers(std)}')
    return resize, ', '.join(values)


def _numbers(values: tuple[float, ...]) -> str:
    return ', '.join(f'{value:.4g}' for value in dict.fromkeys(values))


def with_tables(text: str) -> str:
    """Return the page with the tables of today's families."""
    others = [f for f in (*ALL_FAMILIES, *ENHANCERS, *EMBEDDINGS) if f not in DETECTORS]
    exports, further = (
        grouped((family, (family.export or 'below',)) for family in families)
        for families in (DETECTORS, others)
    )
    preprocessing = grouped((each, _preprocess(each.preprocess)) for each in (*DETECTORS, *others))
    for columns, tables in (
        (DETECTING, [[row(family) for family in DETECTORS]]),
        (OTHERS, [[row(family, OTHERS) for family in others]]),
        (EXPORTING, [exports, further]),
        (PREPROCESSING, [preprocessing]),
    ):
        head = _line(columns) + '\n|' + '---|' * len(columns) + '\n'
        texts = iter(head + '\n'.join(rows) + '\n' for rows in tables)
        text = re.sub(re.escape(head) + r'(?:\|.*\n)+', lambda _, texts=texts: next(texts), text)
    return text


if __name__ == '__main__':
    PAGE.write_text(with_tables(PAGE.read_text()))
