"""Files named as models: refused if they are not ONNX, with the command that exports them."""

import mmap
from pathlib import Path
import re
import shlex
import zipfile

from trt_ros.engine.plan import is_plan, parse_plan_header
from trt_ros.errors import ModelError
from trt_ros.regular_file import open_regular, reading

#: Operators whose results have shapes that depend on the data.
DATA_DEPENDENT = ('NonZero', 'Compress', 'Unique', 'NonMaxSuppression')
LFS_POINTER = b'version https://git-lfs.github.com/spec/'
_HEAD_NBYTES = 4096
_TF2ONNX = 'pip install tf2onnx, then: python -m tf2onnx.convert --{} {path} --output {output}'
_TORCH = (
    'Export it where its Python code is: torch.onnx.export(model, example_inputs, {onnx!r}, '
    'dynamo=True).'
)
_ULTRALYTICS = 'Export it: yolo export model={path} format=onnx'
_SCRIPT = (
    'Export it: torch.onnx.export(torch.jit.load({file!r}), example_inputs, {onnx!r}, '
    'dynamo=False).'
)
_EXPORTED = 'Export it: torch.onnx.export(torch.export.load({file!r}), f={onnx!r}, dynamo=True).'
_SAVED_MODEL = ('a TensorFlow SavedModel', _TF2ONNX.replace('{}', 'saved-model'))


def has_fp8(path: Path) -> bool:
    """Return whether an ONNX file has fp8 tensors; parses only files with Q/DQ nodes."""
    if not file_mentions(path, 'QuantizeLinear'):
        return False
    import onnx  # Imported here: few networks are quantized.

    from trt_ros.engine.builder.onnx_nodes import tensors

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception:  # Whoever loads it reports why.
        return False
    fp8 = {number for name, number in onnx.TensorProto.DataType.items() if 'FLOAT8' in name}
    return any(tensor.data_type in fp8 for tensor in tensors(model.graph))


def file_mentions(path: Path, *words: str) -> bool:
    """Return whether a file contains one of these words."""
    with path.open('rb') as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return any(data.find(word.encode()) >= 0 for word in words)


def check_model_file(path: Path) -> None:
    """Raise ModelError unless a path is a regular, non-empty file of no other format."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise ModelError(
            f'The name of the model file {path} is not UTF-8.',
            cause='ONNX Runtime and TensorRT require UTF-8 file names.',
            remedy='Rename the file or its folder.',
        ) from error
    if (path / 'saved_model.pb').is_file():
        _refuse(path, *_SAVED_MODEL)
    with reading(f'The model file {path}', 'Set the path of a readable .onnx file.'):
        try:
            with open_regular(path) as file:
                head = file.read(_HEAD_NBYTES)
        except FileNotFoundError as error:
            raise ModelError(
                f'The model file {path} does not exist.',
                cause='' if path.is_absolute() else f'The current folder is {Path.cwd()}.',
                remedy='Check the path of the model.',
            ) from error
    if head.startswith(LFS_POINTER):
        raise ModelError(
            f'{path} is a git-LFS pointer, not a model.',
            cause='The repository was cloned without git-lfs.',
            remedy='Run `git lfs install && git lfs pull` in the repository.',
        )
    if not head:
        raise ModelError(f'The model file {path} is empty.', remedy='Export or download it again.')
    _refuse_engine(path, head)
    if head.startswith(b'PK\x03\x04'):
        _refuse_archive(path)
    if path.name == 'saved_model.pb':
        _refuse(path.parent, *_SAVED_MODEL)
    for pattern, what, remedy in _FORMATS:
        if re.match(pattern, head):
            _refuse(path, what, remedy)


def _refuse(path: Path, what: str, remedy: str) -> None:
    onnx = path.with_suffix('.onnx').name if path.suffix else f'{path.name}.onnx'
    if onnx == path.name:  # The export must not overwrite the file.
        onnx = f'{path.stem}_exported.onnx'
    names = {'path': shlex.quote(str(path)), 'file': str(path), 'output': shlex.quote(onnx)}
    raise ModelError(f'{path} is {what}, not ONNX.', remedy=remedy.format(onnx=onnx, **names))


def _refuse_engine(path: Path, head: bytes) -> None:
    if is_plan(path):
        header = parse_plan_header(head.ljust(64, b'\0'))
        _refuse(
            path,
            f'an engine of {header.library} {header.version_text}',
            'Use the ONNX file that it was built from. Engines can be run and inspected, but not '
            'built or compared.',
        )
    nbytes = int.from_bytes(head[:4], 'little')
    if head[4:6] == b'{"' and nbytes < 1 << 20:
        with open_regular(path) as file:
            file.seek(4 + nbytes)
            if file.read(4)[1:] == b'trt':  # 'ftrt' or 'vtrt'
                _refuse(
                    path,
                    'an engine with the metadata of Ultralytics in front',
                    'Export the network to ONNX instead: yolo export model=MODEL.pt format=onnx. '
                    'trt_ros builds and caches the engine.',
                )


def _refuse_archive(path: Path) -> None:
    """Refuse ZIP files of PyTorch and others; their code is not run, their pickles not loaded."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            pickles = [name for name in names if name.endswith('data.pkl')]
            data = b''
            if pickles:
                with archive.open(pickles[0]) as file:
                    data = file.read(1 << 20)
    except (OSError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile):
        names, pickles, data = [], [], b''
    of_export = ('exported_program.json', 'models/model.json')
    for is_it, what, remedy in (
        (any('/code/' in name for name in names) and pickles, 'a TorchScript module', _SCRIPT),
        (any(name.endswith(of_export) for name in names), 'a program of torch.export', _EXPORTED),
        (pickles, 'a checkpoint of PyTorch', _ULTRALYTICS if b'ultralytics' in data else _TORCH),
        (any(name.endswith('.weights.h5') for name in names), *_KERAS),
        (True, 'a ZIP archive', 'Unpack it, and set the path of the .onnx file in it.'),
    ):
        if is_it:
            _refuse(path, what, remedy)


_PICKLE = 'a pickle, as torch.save wrote it before PyTorch 1.6'
_KERAS = ('a Keras model', _TF2ONNX.replace('{}', 'keras'))
#: Beginning of a file, what it is, and the remedy.
_FORMATS = (
    (rb'\x80[\x02-\x05](?s:.*)ultralytics', _PICKLE, _ULTRALYTICS),
    (rb'\x80[\x02-\x05]', _PICKLE, _TORCH),
    (rb'(?s:.{4})TFL3', 'a TensorFlow Lite model', _TF2ONNX.replace('{}', 'tflite')),
    # A GraphDef begins with a node, a NodeDef with its name; ONNX begins with its version.
    (
        rb'\n(?s:.*)(Placeholder|Const)',
        'a frozen TensorFlow graph',
        _TF2ONNX.replace('{}', 'graphdef') + ' --inputs INPUT:0 --outputs OUTPUT:0',
    ),
    (rb'\x89HDF\r\n', 'a Keras model in HDF5', _KERAS[1]),
    (rb'(?s:.{4})\0{4}\{"', 'a file of weights without their network (safetensors)', _TORCH),
    (
        rb'<\?xml|<net ',
        'XML, perhaps a network of OpenVINO',
        'Export the original model to ONNX; nothing converts OpenVINO back.',
    ),
)
