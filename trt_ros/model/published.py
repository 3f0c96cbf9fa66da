"""Class names, preprocessing and input size that exporters write into a model or beside it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
import json
from pathlib import Path
from typing import Any

from trt_ros.errors import counted
from trt_ros.regular_file import read_regular

MAX_NBYTES = 1 << 24  # Of a file beside a model, such as the vocabulary of a tokenizer.
OPENVINO = 'model_info '  # Begin of its keys.
#: Minimum and maximum of the numbers of preprocessing: of the options of these names, which a test
#: keeps equal.
RANGES = {
    'mean': (-1e6, 1e6),
    'std': (1e-6, 1e6),
    'scale': (1e-6, 1e6),
    'crop_fraction': (0.01, 1.0),
    'pad_value': (0, 255),
}


@dataclass(frozen=True)
class Published:
    """Description of a network by its exporter: metadata, preprocessing, a line per source."""

    metadata: Mapping[str, str]
    preprocess: Mapping[str, Any] = field(default_factory=dict)
    log_lines: tuple[str, ...] = ()


def read_published(model_path: str, metadata: Mapping[str, str]) -> Published:
    """Return what the metadata of a model and the files beside it say; all are optional."""
    found = dict(metadata)
    preprocess: dict[str, Any] = {}
    lines = []
    for source, values in _sources(Path(model_path).expanduser(), metadata):
        names, size = values.pop('names', ()), values.pop('size', ())
        told = sorted(values)
        if names and 'names' not in found:
            found['names'] = repr(list(map(str, names)))
            told.append(counted(len(names), 'class name'))
        if size and 'imgsz' not in found:
            found['imgsz'] = repr(list(size))
            told.append(f'input size {size[1]}x{size[0]}')
        preprocess = {**values, **preprocess}
        if told:
            lines.append(f'{source}: {", ".join(told)}')
    return Published(found, preprocess, tuple(lines))


def _sources(path: Path, metadata: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    with suppress(ValueError):
        yield 'metadata of OpenVINO', _checked(_of_openvino(metadata))
    for name, stem, read in FILES:
        for folder in (path.parent, path.parent.parent)[: 1 + (path.parent.name == 'onnx')]:
            if not (folder / name).is_file():
                continue
            # Beside several models it may be of another one, but for the names that exporters use.
            if not path.stem.startswith(stem) and len(list(path.parent.glob('*.onnx'))) != 1:
                continue
            with suppress(
                OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError
            ):
                text = read_regular(folder / name, MAX_NBYTES).decode()
                yield name, _checked(read(_values(name, text)))
                break


def _values(name: str, text: str) -> Any:
    if name.endswith('json'):
        return json.loads(text)
    import yaml  # Imported where there is such a file.

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    """Return preprocessing; raise ValueError for numbers that none has, such as NaN."""
    for name in RANGES.keys() & values.keys():
        low, high = RANGES[name]
        numbers = values[name] if isinstance(values[name], tuple) else (values[name],)
        if not all(low <= number <= high for number in numbers):
            raise ValueError(f'{name} is {values[name]}')
    return values


def _normalized(mean: Any, std: Any, scale: float) -> dict[str, Any]:
    mean, std = (tuple(map(float, each or default)) for each, default in ((mean, [0]), (std, [1])))
    if len(mean) not in (1, 3) or len(std) not in (1, 3):
        raise ValueError('not for images')
    return {'mean': mean, 'std': std, 'scale': scale}


def _of_openvino(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return what its Model API writes: values in pixels of 0 to 255, BGR unless reversed."""
    values = {
        key.removeprefix(OPENVINO): value
        for key, value in metadata.items()
        if key.startswith(OPENVINO)
    }
    found: dict[str, Any] = {}
    if 'labels' in values:
        found['names'] = [name.replace('_', ' ') for name in values['labels'].split()]
    if values.get('embedded_processing', '').lower() == 'true':
        return found
    if 'mean_values' in values or 'scale_values' in values:
        mean, std = (values.get(key, '').split() for key in ('mean_values', 'scale_values'))
        found |= _normalized(mean, std, 1.0)
    if 'reverse_input_channels' in values:
        is_rgb = values['reverse_input_channels'].lower() in ('true', 'yes')
        found['channel_order'] = 'rgb' if is_rgb else 'bgr'
    resize = {
        'standard': 'stretch',
        'fit_to_window': 'letterbox_topleft',
        'fit_to_window_letterbox': 'letterbox',
    }.get(values.get('resize_type', ''))
    if resize:
        found['resize'] = resize
        if resize != 'stretch' and 'pad_value' in values:
            found['pad_value'] = int(values['pad_value'])
    return found


def _of_hugging_face(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return names and normalization of `config.json` of transformers and timm."""
    pretrained = config.get('pretrained_cfg') or {}
    found: dict[str, Any] = {}
    if pretrained:
        found = _normalized(pretrained.get('mean'), pretrained.get('std'), 1 / 255)
        found['size'] = _size(pretrained.get('input_size', [])[1:])
        found['names'] = config.get('label_names') or ()
    # Networks without classes have a default of two.
    kinds = ('Classification', 'Segmentation', 'Detection')
    if any(kind in str(name) for name in config.get('architectures') or () for kind in kinds):
        by_index = {int(index): name for index, name in (config.get('id2label') or {}).items()}
        names = [by_index[index] for index in range(len(by_index))]
        found['names'] = () if any(name == f'LABEL_{n}' for n, name in enumerate(names)) else names
    return found


def _of_image_processor(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the normalization and size of `preprocessor_config.json` of transformers."""
    scale = config.get('rescale_factor', 1 / 255) if config.get('do_rescale', True) else 1.0
    is_normalized = config.get('do_normalize', True)
    mean, std = (config.get(key) if is_normalized else None for key in ('image_mean', 'image_std'))
    found = _normalized(mean, std, float(scale))
    if config.get('do_flip_channel_order'):
        found['channel_order'] = 'bgr'
    size, crop = config.get('size') or {}, config.get('crop_size')
    is_cropped = config.get('do_center_crop', False) and crop
    found['size'] = _size(crop if is_cropped else size)
    edge = size.get('shortest_edge') if isinstance(size, dict) else None
    if 'crop_pct' in config:
        found['crop_fraction'] = float(config['crop_pct'])
    elif is_cropped and edge and found['size']:
        found['crop_fraction'] = min(min(found['size']) / edge, 1.0)
    elif found['size'] and isinstance(size, dict) and config.get('do_resize', True):
        found['resize'] = 'stretch'
    return found


def _of_paddle(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return names and preprocessing of PaddleX (`inference.yml`) and PaddleDetection."""
    steps = _steps(config.get('PreProcess') or config.get('Preprocess') or {})
    found: dict[str, Any] = {}
    if 'NormalizeImage' in steps:
        step = steps['NormalizeImage'] or {}
        is_plain = step.get('norm_type') == 'none'
        scale = step.get('scale', 1 / 255 if step.get('is_scale', True) else 1.0)
        if isinstance(scale, str):  # '1./255.'
            top, _, bottom = scale.partition('/')
            scale = float(top) / float(bottom or 1)
        mean, std = (None if is_plain else step.get(key) for key in ('mean', 'std'))
        found = _normalized(mean, std, float(scale or 1.0))
    if (steps.get('DecodeImage') or {}).get('img_mode') == 'BGR':
        found['channel_order'] = 'bgr'
    for step, key in (
        ('Resize', 'target_size'),
        ('RecResizeImg', 'image_shape'),
        ('CropImage', 'size'),
    ):
        size = (steps.get(step) or {}).get(key)
        found.setdefault('size', _size(size[-2:] if isinstance(size, list) else size))
        found = {name: value for name, value in found.items() if value}
    after = config.get('PostProcess') or {}
    steps_after = [each for each in after.values() if isinstance(each, dict)]
    listed = [each.get('label_list') for each in (config, *steps_after)]
    found['names'] = next(filter(None, listed), ())
    characters = after.get('character_dict')
    if characters:  # Class 0 is none, the last one a space.
        found['names'] = ['blank', *characters, ' ']
    return found


def _of_mmdeploy(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the preprocessing of `pipeline.json`, in pixels of 0 to 255."""
    tasks = config['pipeline']['tasks']
    steps = _steps([each for task in tasks for each in task.get('transforms') or ()])
    found: dict[str, Any] = {}
    if 'Normalize' in steps:
        step = steps['Normalize']
        found = _normalized(step.get('mean'), step.get('std'), 1.0)
        found['channel_order'] = 'rgb' if step.get('to_rgb', True) else 'bgr'
    return found


def _steps(steps: Any) -> dict[str, Any]:
    if isinstance(steps, dict):
        steps = steps.get('transform_ops') or []
    found: dict[str, Any] = {}
    for step in steps:
        kind = step.get('type') or step.get('name')
        found |= {kind: step} if isinstance(kind, str) else step
    return found


def _size(size: Any) -> tuple[int, ...]:
    """Return height and width; () if the size is not fixed."""
    if isinstance(size, dict):
        size = [size.get('height'), size.get('width')]
    elif isinstance(size, int):
        size = [size, size]
    is_fixed = len(size or ()) == 2 and all(isinstance(n, int) and n > 0 for n in size)
    return tuple(size) if is_fixed else ()


#: Files beside a model, the beginning of the names that the exporter gives models, and readers.
FILES: tuple[tuple[str, str, Callable[[Any], dict[str, Any]]], ...] = (
    ('preprocessor_config.json', 'model', _of_image_processor),
    ('config.json', 'model', _of_hugging_face),
    ('inference.yml', 'inference', _of_paddle),
    ('infer_cfg.yml', 'model', _of_paddle),
    ('pipeline.json', 'end2end', _of_mmdeploy),
)
