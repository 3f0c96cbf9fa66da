"""Models by name, from a server that speaks as the Hugging Face Hub and its storage do."""

from functools import partial
import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import multiprocessing
from pathlib import Path
import threading

import numpy as np
import onnx
import pytest

from support.save_network import parse_network
from trt_ros.cli import main
from trt_ros.engine.download import local_model
from trt_ros.errors import ModelError, ParameterError
from trt_ros.progress import CancelledError, Reporter
from trt_ros.runtime.pipeline import Pipeline

NAME = 'hf://maker/net/onnx/model.onnx'
CONTENT = np.random.default_rng(0).bytes(3 << 20)


class Server(ThreadingHTTPServer):
    """
    Serves `files` by their paths in the repository maker/net, and by /PATH from its storage.

    :ivar cuts: bytes after which the next responses end, in order.
    :ivar requests: (path, range, token) of each request.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Handler)
        self.address = f'http://127.0.0.1:{self.server_port}'
        self.files, self.cuts, self.requests, self.token = {}, [], [], None
        self.headers, self.names_digest, self.tag = {}, True, '"1"'

    def handle_error(self, *_):
        """Leave out the traceback of a connection that the client has closed."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def do_GET(self):
        server, path, token = self.server, self.path, self.headers.get('Authorization')
        server.requests.append((path, self.headers.get('Range'), token))
        prefix = '/maker/net/resolve/main/'
        if path.startswith(prefix):
            if server.token and token != f'Bearer {server.token}':
                return self.send_error(401)
            if (content := server.files.get(path.removeprefix(prefix))) is None:
                return self.send_error(404)
            # Another host, as the storage of the Hub is.
            other = server.address.replace('127.0.0.1', 'localhost')
            self.send_response(302)
            self.send_header('Location', f'{other}/{path.removeprefix(prefix)}?signature=secret')
            if server.names_digest:
                digest = hashlib.sha256(content).hexdigest()
                self.send_header('X-Linked-ETag', f'"{digest}"')
            self.send_header('Content-Length', '0')
            return self.end_headers()
        content = server.files.get(path[1:].partition('?')[0])
        if content is None:
            return self.send_error(404)
        begin = 0
        if self.headers.get('Range') and self.headers.get('If-Range') == server.tag:
            begin = int(self.headers['Range'][len('bytes=') : -1])
            if begin >= len(content):
                return self.send_error(416)
        self.send_response(206 if begin else 200)
        headers = {'Content-Length': len(content) - begin, 'ETag': server.tag, **server.headers}
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        end = begin + server.cuts.pop(0) if server.cuts else len(content)
        self.wfile.write(content[begin:end])
        self.close_connection = end < len(content)
        return None


@pytest.fixture
def server(monkeypatch, tmp_path):
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={'poll_interval': 0.01})
        thread.start()
        monkeypatch.setenv('HF_ENDPOINT', server.address)
        monkeypatch.setenv('HF_HOME', str(tmp_path / 'hf'))
        monkeypatch.delenv('HF_TOKEN', raising=False)
        server.files['onnx/model.onnx'] = CONTENT
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def get(tmp_path):
    return partial(local_model, report=Reporter(), cache_dir=tmp_path / 'cache')


def digest(content):
    return hashlib.sha256(content).hexdigest()


def ranges(server):
    return [each for path, each, _ in server.requests if path.startswith('/onnx/model.onnx')]


@pytest.mark.parametrize('path', ['net.onnx', '/a/net.onnx', 'grpc://robot:8001/net', ''])
def test_paths_and_models_of_servers_stay(path, get):
    assert get(path) == path


def test_a_file_address_is_its_path(tmp_path, get):
    path = tmp_path / 'the net.onnx'
    path.write_bytes(b'net')
    address = f'file://{tmp_path}/the%20net.onnx'
    assert get(address) == get(f'{address}#sha256={digest(b"net")}') == str(path)
    with pytest.raises(ModelError, match=f'SHA-256 .* is {digest(b"net")}, expected 0000'):
        get(f'{address}#sha256={"0" * 64}')


def test_a_model_is_downloaded_once_and_then_needs_no_network(server, get, tmp_path):
    server.files |= {'config.json': b'{}', 'onnx/preprocessor_config.json': b'not this one'}
    path = Path(get(NAME))
    assert path == tmp_path / 'cache/models/hf/maker/net/main/onnx/model.onnx'
    assert path.read_bytes() == CONTENT
    assert (path.parent.parent / 'config.json').read_bytes() == b'{}'
    assert Path(f'{path}.sha256').read_text().splitlines() == [
        f'{digest(CONTENT)}  model.onnx',
        f'{digest(b"{}")}  ../config.json',
    ]
    asked = len(server.requests)
    assert get(NAME) == get(f'{NAME}#sha256={digest(CONTENT)}') == str(path)
    assert len(server.requests) == asked
    paths = (tmp_path / 'cache').rglob('*')
    assert not [path for path in paths if path.suffix in ('.part', '.etag')]


def test_external_data_is_downloaded_with_its_model(server, get, tmp_path):
    weight = np.arange(64, dtype=np.float32)
    model = parse_network(
        '(float[64] x) => (float[64] y) { y = Add(x, w) }', constants={'w': weight}
    )
    external = {'save_as_external_data': True, 'location': 'model.onnx_data', 'size_threshold': 0}
    onnx.save(model, tmp_path / 'model.onnx', **external)
    for name in ('model.onnx', 'model.onnx_data'):
        server.files[f'onnx/{name}'] = (tmp_path / name).read_bytes()
    assert onnx.load(get(NAME)).graph.initializer[0].raw_data == weight.tobytes()


@pytest.mark.parametrize('names_digest', [True, False])
def test_a_cut_connection_is_resumed_at_once(names_digest, server, get):
    server.names_digest, server.cuts = names_digest, [1000, 2000]
    assert Path(get(NAME)).read_bytes() == CONTENT
    assert ranges(server) == [None, 'bytes=1000-', 'bytes=3000-']


def test_a_download_that_stopped_is_resumed_by_the_next_start(server, get):
    server.cuts = [1000, 0]
    with pytest.raises(ModelError, match=f'stopped at 1000 of {len(CONTENT)} bytes') as caught:
        get(NAME)
    assert 'signature' not in str(caught.value)
    assert Path(get(NAME)).read_bytes() == CONTENT
    assert ranges(server)[-1] == 'bytes=1000-'


@pytest.mark.parametrize(
    ('cut', 'content', 'tag'),
    [(1000, CONTENT[::-1], '"2"'), (len(CONTENT) - 1, CONTENT[:-1], '"1"')],
    ids=['changed', 'as long as the part'],
)
def test_another_file_begins_anew(server, get, cut, content, tag):
    server.cuts = [cut, 0]
    with pytest.raises(ModelError):
        get(NAME)
    server.files['onnx/model.onnx'], server.tag = content, tag
    assert Path(get(NAME)).read_bytes() == content


def test_another_hash_than_the_given_one_is_refused_and_nothing_stays(server, get, tmp_path):
    with pytest.raises(ModelError, match=f'expected {"0" * 64}'):
        get(f'{NAME}#sha256={"0" * 64}')
    assert not list((tmp_path / 'cache').rglob('*model.onnx*'))


def test_a_file_that_is_not_what_the_hub_names_is_refused(server, get, tmp_path):
    class Lying(bytes):
        """Bytes that are sent in another order."""

        def __getitem__(self, part):
            return bytes(self)[::-1][part]

    server.files['onnx/model.onnx'] = Lying(CONTENT)
    with pytest.raises(ModelError, match='replaced, or is damaged'):
        get(NAME)


@pytest.mark.parametrize(
    ('content', 'what'),
    [
        (b'\n<!DOCTYPE html>', 'web page'),
        (b'version https://git-lfs.github.com/spec/v1', 'LFS pointer'),
    ],
)
def test_what_is_no_model_is_told_and_downloaded_again(content, what, server, get):
    server.files['onnx/model.onnx'] = content
    with pytest.raises(ModelError, match=what):
        get(NAME)
    server.files['onnx/model.onnx'] = CONTENT
    assert Path(get(NAME)).read_bytes() == CONTENT


def test_the_first_hash_is_kept(server, get):
    path = Path(get(NAME))
    path.write_bytes(b'damaged')
    assert Path(get(NAME)).read_bytes() == CONTENT
    path.write_bytes(b'damaged')
    server.files['onnx/model.onnx'] = b'another model'
    with pytest.raises(ModelError, match=f'#sha256={digest(b"another model")}') as caught:
        get(NAME)
    address = f'{NAME}#sha256={digest(b"another model")}'
    assert address.rpartition('#')[2] in caught.value.remedy
    assert Path(get(address)).read_bytes() == b'another model'


def test_a_private_repository_needs_the_token_which_its_storage_does_not_see(
    server, get, monkeypatch, tmp_path
):
    server.token = 'hf_secret'
    with pytest.raises(ModelError, match=r'HTTP 401(.|\n)*HF_TOKEN'):
        get(NAME)
    (tmp_path / 'hf').mkdir()
    (tmp_path / 'hf/token').write_text('hf_secret\n')
    get(NAME)
    seen = {(path.partition('?')[0], token) for path, _, token in server.requests if token}
    assert ('/maker/net/resolve/main/onnx/model.onnx', 'Bearer hf_secret') in seen
    assert not any(path.startswith('/onnx') for path, _ in seen)


def test_a_full_disk_is_reported(server, get, tmp_path):
    folder = tmp_path / 'cache/models/hf/maker/net/main/onnx'
    folder.mkdir(parents=True, mode=0o700)
    (folder / '.model.onnx.part').symlink_to('/dev/full')
    with pytest.raises(ParameterError, match=r'No space left(.|\n)*engine_cache_dir'):
        get(NAME)
    (folder / '.model.onnx.part').unlink()
    server.headers['Content-Length'] = 1 << 60
    with pytest.raises(ParameterError, match=f'{1 << 60} bytes are needed'):
        get(NAME)


@pytest.mark.parametrize(
    ('address', 'problem'),
    [
        ('hf://maker/net', 'names no file'),
        ('hf://maker/net/../x.onnx', 'invalid path'),
        ('hf://../../x.onnx', 'invalid path'),
        ('hf://maker/net//etc/x.onnx', 'invalid path'),
        ('https://me:word@robot/x.onnx', 'has a user'),
        ('http://robot/x.onnx', 'not encrypted'),
        ('hf://maker/net/robot.yaml', 'is a bundle'),
        (f'{NAME}#sha256=12', 'invalid #sha256=12'),
        ('https://127.0.0.1:1/x.onnx', 'cannot be downloaded'),
        ('hf://maker/net/missing.onnx', 'HTTP 404'),
        ('hf://maker/net/page.html', 'web page'),
        ('hf://maker/net/net.engine', 'executable code'),
    ],
)
def test_what_cannot_be_downloaded_is_refused(address, problem, server, get):
    server.files |= {'page.html': b'<html>', 'net.engine': b'ftrt' + bytes(60)}
    server.headers |= {'Content-Type': 'text/html'} if 'page' in address else {}
    with pytest.raises((ModelError, ParameterError), match=problem):
        get(address)


def test_a_page_of_the_hub_is_its_model_and_a_plain_address_is_taken_with_its_hash(server, get):
    assert get('https://huggingface.co/maker/net/blob/main/onnx/model.onnx') == get(NAME)
    path = get(f'{server.address}/onnx/model.onnx?version=1#sha256={digest(CONTENT)}')
    assert Path(path).read_bytes() == CONTENT
    assert Path(path).name == 'model.onnx'


def test_a_download_is_cancelled(server, tmp_path):
    cancelled = threading.Event()
    report = Reporter(lambda progress: cancelled.set() if progress.percent else None, cancelled)
    with pytest.raises(CancelledError):
        local_model(NAME, report, tmp_path / 'cache')


@pytest.mark.slow
def test_two_processes_download_once(server, get):
    context = multiprocessing.get_context('spawn')
    with context.Pool(2) as pool:
        first, second = [pool.apply_async(get, (NAME,)) for _ in range(2)]
        assert first.get(60) == second.get(60)
    assert ranges(server) == [None]


def test_a_read_only_cache_is_used(server, get, tmp_path):
    get(NAME)
    (tmp_path / 'cache/models/hf/maker/net/main/onnx/.lock').unlink()
    (tmp_path / 'cache/models/hf/maker/net/main/onnx/.lock').mkdir()  # Cannot be opened.
    assert get(NAME)


@pytest.mark.slow
def test_pipeline_and_command_line_take_an_address(server, models, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'home'))
    path = models.one('Relu')
    server.files['onnx/model.onnx'] = path.read_bytes()
    address = f'{NAME}#sha256={digest(path.read_bytes())}'
    with Pipeline.open(address, backend='onnxruntime', inputs=('x=tensor:t',)) as pipeline:
        assert list(pipeline.feeds) == ['x']
    assert main(['inspect', address]) == 0
    assert 'x' in capsys.readouterr().out
    assert main(['inspect', f'{NAME}#sha256={"0" * 64}']) == 1
    assert 'SHA-256' in capsys.readouterr().err
