"""Files named as models: refused if they are not ONNX, with the command that exports them."""

from pathlib import Path
import re
import shlex
import zipfile

from trt_ros.engine.plan import is_plan, parse_plan_header
from trt_ros.errors import ModelError
from trt_ros.regular_file import open_regular

LFS_POINTER = b'version https://git-lfs.github.com/spec/'
_HEAD_NBYTES = 4096
_TF2ONNX = 'pip install tf2onnx, then: python -m tf2onnx.convert {flag} {path} --output {output}'
_TORCH = (
    'Export it where its Python code is: torch.onnx.export(model, example_inputs, {onnx!r}, '
    'dynamo=True).'
)
_ULTRALYTICS = 'Export it: yolo export model={path} format=onnx'


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
        _refuse(path, 'a TensorFlow SavedModel', _TF2ONNX, flag='--saved-model')
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD_NBYTES)
    except FileNotFoundError as error:
        raise ModelError(
            f'The model file {path} does not exist.',
            cause='' if path.is_absolute() else f'The current folder is {Path.cwd()}.',
            remedy='Check the path of the model.',
        ) from error
    except OSError as error:
        raise ModelError(
            f'The model file {path} cannot be read.',
            cause=error.strerror or '',
            remedy='Set the path of a readable .onnx file.',
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
    _refuse_torch(path, head)
    _refuse_others(path, head)


def _refuse(path: Path, what: str, remedy: str, *, flag: str = '') -> None:
    onnx = path.with_suffix('.onnx').name if path.suffix else f'{path.name}.onnx'
    if onnx == path.name:  # The export must not overwrite the file.
        onnx = f'{path.stem}_exported.onnx'
    raise ModelError(
        f'{path} is {what}, not ONNX.',
        remedy=remedy.format(
            flag=flag,
            path=shlex.quote(str(path)),
            file=str(path),
            onnx=onnx,
            output=shlex.quote(onnx),
        ),
    )


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


def _refuse_torch(path: Path, head: bytes) -> None:
    """Refuse files of PyTorch; their code is not run, and their pickles are not loaded."""
    if re.match(rb'\x80[\x02-\x05]', head):
        remedy = _ULTRALYTICS if b'ultralytics' in head else _TORCH
        _refuse(path, 'a pickle, as torch.save wrote it before PyTorch 1.6', remedy)
    if not head.startswith(b'PK\x03\x04'):
        return
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
    if any('/code/' in name for name in names) and pickles:
        _refuse(
            path,
            'a TorchScript module',
            'Export it: torch.onnx.export(torch.jit.load({file!r}), example_inputs, {onnx!r}, '
            'dynamo=False).',
        )
    if any(name.endswith(('exported_program.json', 'models/model.json')) for name in names):
        _refuse(
            path,
            'a program of torch.export',
            'Export it: torch.onnx.export(torch.export.load({file!r}), f={onnx!r}, dynamo=True).',
        )
    if pickles:
        remedy = _ULTRALYTICS if b'ultralytics' in data else _TORCH
        _refuse(path, 'a checkpoint of PyTorch', remedy)
    if any(name.endswith('.weights.h5') for name in names):
        _refuse(path, 'a Keras model', _TF2ONNX, flag='--keras')
    _refuse(path, 'a ZIP archive', 'Unpack it, and set the path of the .onnx file in it.')


def _refuse_others(path: Path, head: bytes) -> None:
    if head[4:8] == b'TFL3':
        _refuse(path, 'a TensorFlow Lite model', _TF2ONNX, flag='--tflite')
    if path.name == 'saved_model.pb':
        _refuse(path.parent, 'a TensorFlow SavedModel', _TF2ONNX, flag='--saved-model')
    # A GraphDef begins with a node, a NodeDef with its name; ONNX begins with its version.
    if head[:1] == b'\n' and re.search(rb'Placeholder|Const', head):
        _refuse(
            path,
            'a frozen TensorFlow graph',
            _TF2ONNX + ' --inputs INPUT:0 --outputs OUTPUT:0',
            flag='--graphdef',
        )
    if head.startswith(b'\x89HDF\r\n'):
        _refuse(path, 'a Keras model in HDF5', _TF2ONNX, flag='--keras')
    if int.from_bytes(head[:8], 'little') < 1 << 32 and head[8:10] == b'{"':
        _refuse(path, 'a file of weights without their network (safetensors)', _TORCH)
    if re.match(rb'<\?xml|<net ', head):
        _refuse(
            path,
            'XML, perhaps a network of OpenVINO',
            'Export the original model to ONNX; nothing converts OpenVINO back.',
        )
