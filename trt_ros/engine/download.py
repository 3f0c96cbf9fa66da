"""Models by name: hf://, https:// and file:// addresses, downloaded once into the cache."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
import errno
from hashlib import sha256
from http.client import HTTPException
import io
import os
from pathlib import Path, PurePosixPath
import re
import shutil
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from trt_ros.engine.cache import EngineCache
from trt_ros.engine.files import locked, make_private
from trt_ros.engine.key import external_locations
from trt_ros.engine.plan import is_plan
from trt_ros.errors import ModelError, ParameterError
from trt_ros.progress import Reporter
from trt_ros.regular_file import (
    FILE_SCHEMES,
    MAX_TEXT_NBYTES,
    PART,
    read_regular,
    sha256_of_file,
    write_atomically,
)

#: Suffix of the record of a complete model: its files, as sha256sum lists them.
RECORD = '.sha256'
#: Files beside a model of the Hugging Face Hub that describe it.
DESCRIPTIONS = ('config.json', 'preprocessor_config.json')
HUB = 'https://huggingface.co'
TIMEOUT_SECONDS = 20.0
_HUB_NAME = re.compile(r'hf://([\w.-]+/[\w.-]+?)(?:@([\w.-]+))?/(.+)')
_HUB_PAGE = re.compile(rf'{HUB}/([^/]+/[^/]+)/(?:blob|resolve)/([^/]+)/([^?]+)(?:\?.*)?')


@dataclass(frozen=True)
class _File:
    url: str
    path: Path
    is_of_hub: bool

    def beside(self, name: str, levels: int = 1) -> _File:
        """Return the file `name` of the same folder, or of one above it."""
        url = f'{str(self).rsplit("/", levels)[0]}/{quote(name)}'
        return _File(url, self.path.parents[levels - 1] / name, self.is_of_hub)

    def __str__(self) -> str:
        return self.url.partition('?')[0]  # A query may hold a secret.


def local_model(address: str, report: Reporter, cache_dir: Path | str = '') -> str:
    """Return the path of a model; download it if it has an address and is not in the cache."""
    name, _, fragment = address.partition('#')
    if not name.startswith(FILE_SCHEMES):
        return address
    expected = fragment.removeprefix('sha256=').lower()
    if fragment and not re.fullmatch('[0-9a-f]{64}', expected):
        raise ParameterError(
            f'The address {name} has an invalid #{fragment}.',
            remedy='Write #sha256= and the 64 hexadecimal digits of sha256sum, or nothing.',
        )
    if name.startswith('file://'):
        path = Path(unquote(urlsplit(name).path))
        if expected:
            _check_digest(path, _digest(path), expected)
        return str(path)
    root = EngineCache(cache_dir).root
    file = _parse(name, root / 'models', is_pinned=bool(expected))
    folder = file.path.parent
    if not _is_complete(file.path, expected):
        try:
            make_private(folder, root)
            with locked(folder, report):
                if not _is_complete(file.path, expected):
                    _download_all(file, expected, report)
        except OSError as error:
            raise ParameterError(
                f'{file} cannot be stored in the cache {root}.',
                cause=error.strerror or str(error),
                remedy='Make room there, or set engine_cache_dir to a writable folder elsewhere.',
            ) from error
    if not expected and is_plan(file.path):
        raise ParameterError(
            f'{file} is a TensorRT engine, which is executable code.',
            remedy='Append #sha256= and its SHA-256, from whom you trust.',
        )
    return str(file.path)


def _parse(name: str, folder: Path, *, is_pinned: bool) -> _File:
    """:raises ParameterError: when the address is invalid, or not secure."""
    if page := _HUB_PAGE.fullmatch(name):
        name = f'hf://{page[1]}@{page[2]}/{unquote(page[3])}'
    found, parts = _HUB_NAME.fullmatch(name), urlsplit(name)
    relative = PurePosixPath(found[3] if found else unquote(parts.path))
    if (name.startswith('hf://') and not found) or not relative.name:
        raise ParameterError(
            f'The address {name} names no file.',
            remedy='Write hf://OWNER/REPOSITORY[@REVISION]/PATH.onnx, or https://HOST/PATH.onnx.',
        )
    if '@' in parts.netloc or (found and {'', '.', '..'} & {*re.split('[/@]', name[5:])}):
        raise ParameterError(
            f'The address {name} has {"a user" if "@" in parts.netloc else "an invalid path"}.',
            remedy='Leave out what is before the host, and . and .. in the path.',
        )
    if relative.suffix in ('.yaml', '.yml'):
        raise ParameterError(
            f'{name} is a bundle, which cannot be downloaded by its name.',
            cause='The networks and arrays that it names are files of their own.',
            remedy='Download its folder, and set the path of the file.',
        )
    if found:
        revision = found[2] or 'main'
        hub = os.environ.get('HF_ENDPOINT', '').rstrip('/') or HUB
        url = f'{hub}/{found[1]}/resolve/{revision}/{quote(str(relative))}'
        return _File(url, folder / 'hf' / found[1] / revision / relative, True)
    if parts.scheme == 'http' and not is_pinned:
        raise ParameterError(
            f'{name} is not encrypted, so others on the network can replace the model.',
            remedy='Use https://, or append #sha256= and the SHA-256 of the file.',
        )
    host, key = parts.netloc.replace(':', '_'), sha256(name.encode()).hexdigest()[:16]
    return _File(name, folder / host / key / relative.name, False)


def _digest(path: Path) -> str:
    with suppress(OSError):
        return sha256_of_file(path)
    return ''


def _check_digest(file: _File | Path, digest: str, expected: str, cause: str = '') -> None:
    """:raises ModelError: when they differ."""
    if digest != expected:
        raise ModelError(
            f'The SHA-256 of {file} is {digest or "unknown"}, expected {expected}.',
            cause=cause,
            remedy=f'If this file is the right one, append #sha256={digest} to its address.'
            if digest
            else 'Check the path.',
        )


def _recorded(path: Path) -> dict[str, str]:
    """Return the SHA-256 of a model and the files beside it by their names; {} without."""
    with suppress(OSError, ValueError):
        text = read_regular(path.with_name(path.name + RECORD), MAX_TEXT_NBYTES).decode()
        return {line[66:]: line[:64] for line in text.splitlines()}
    return {}


def _is_complete(path: Path, expected: str) -> bool:
    recorded = _recorded(path)
    return (
        path.name in recorded
        and recorded[path.name] == (expected or recorded[path.name])
        and all(_digest(path.parent / name) == each for name, each in recorded.items())
    )


def _download_all(file: _File, expected: str, report: Reporter) -> None:
    """Download a model and the files that belong to it, and record them."""
    before = _recorded(file.path)
    folder = file.path.parent
    digests = {}

    def add(each: _File, *, is_optional: bool) -> None:
        name = os.path.relpath(each.path, folder)
        known = (expected if each is file else '') or before.get(name, '')
        try:
            digests[name] = _download(each, known, report)
        except _MissingError:
            if not is_optional:
                raise

    add(file, is_optional=False)
    _refuse_page(file)
    for name in sorted(set(external_locations(file.path))):
        add(file.beside(name), is_optional=True)  # It may be no name at all.
    for name in DESCRIPTIONS if file.is_of_hub else ():
        add(file.beside(name, 1 + (folder.name == 'onnx')), is_optional=True)
    lines = ''.join(f'{digest}  {name}\n' for name, digest in digests.items())
    write_atomically(file.path.with_name(file.path.name + RECORD), io.BytesIO(lines.encode()))


def _refuse_page(file: _File) -> None:
    """Remove what is no model, so that the next start downloads it again, and raise ModelError."""
    with file.path.open('rb') as opened:
        start = opened.read(64).lstrip()
    if start.startswith((b'<', b'version https://git-lfs')):
        file.path.unlink()
        what = 'a web page' if start[:1] == b'<' else 'a Git LFS pointer'
        raise ModelError(
            f'{file} is {what}, not a model.',
            cause='The server asks for a login, or shows the file instead of sending it.',
            remedy='Use the address of the file itself, as behind a download button.',
        )


def _download(file: _File, known: str, report: Reporter) -> str:
    """Download a file unless it is there; return its SHA-256, which is `known` if given."""
    digest = _digest(file.path)
    if digest and digest == (known or digest):
        return digest
    part = file.path.with_name(f'.{file.path.name}{PART}')
    part.parent.mkdir(parents=True, exist_ok=True)
    of_hub = _transfer(file, part, report)
    digest = sha256_of_file(part)
    try:
        _check_digest(file, digest, known or of_hub or digest, 'It was replaced, or is damaged.')
    except ModelError:
        part.unlink()
        raise
    os.replace(part, file.path)
    return digest


def _transfer(file: _File, part: Path, report: Reporter) -> str:
    """Download into `part`, from its end on; return the SHA-256 of the Hub, '' if unknown."""
    etag = part.with_suffix('.etag')
    while True:
        tag = etag.read_text() if etag.exists() else ''
        begun = part.stat().st_size if tag and part.exists() else 0
        ranged = {'Range': f'bytes={begun}-', 'If-Range': tag} if begun else {}
        response, of_hub = _open(file, ranged)
        if response is None:  # The file has no bytes from there on.
            part.unlink()
            continue
        with response, part.open('ab' if response.status == 206 else 'wb') as out:
            begun = out.tell()
            etag.write_text(response.headers.get('ETag', ''))
            length = response.headers.get('Content-Length')
            total = begun + int(length) if length else None
            free = shutil.disk_usage(part.parent).free
            if total and total - begun > free:
                raise OSError(errno.ENOSPC, f'{total - begun} bytes are needed, {free} are free')
            cut: Exception | None = None
            while True:
                try:
                    block = response.read(1 << 20)
                except (OSError, HTTPException) as error:
                    cut, block = error, b''
                if not block:
                    break
                out.write(block)
                report(
                    f'downloading {file.path.name}', 100 * out.tell() / total if total else None
                )
            nbytes = out.tell()
        if nbytes == total or (total is None and cut is None):
            etag.unlink()
            return of_hub
        if nbytes == begun:
            raise ModelError(
                f'The download of {file} stopped at {nbytes} of {total} bytes.',
                cause=str(cut or 'The server closed the connection.'),
                remedy='Start again: the download continues from there.',
            )


class _MissingError(ModelError):
    """A file that the server does not have."""


class _Redirects(HTTPRedirectHandler):
    of_hub = ''

    def redirect_request(self, req: Request, fp: Any, *args: Any) -> Request | None:
        code, message, headers, url = args
        if req.type == 'https' and not url.startswith('https://'):
            raise HTTPError(url, code, 'Redirected to an address without encryption', headers, fp)
        digest = headers.get('X-Linked-ETag', '').strip('"')
        self.of_hub = digest if re.fullmatch('[0-9a-f]{64}', digest) else self.of_hub
        following = super().redirect_request(req, fp, code, message, headers, url)
        token = req.unredirected_hdrs.get('Authorization')
        if following and token and (following.type, following.host) == (req.type, req.host):
            following.add_unredirected_header('Authorization', token)
        return following


def _open(file: _File, headers: dict[str, str]) -> tuple[Any, str]:
    """Request a file; return the response, None beyond its end, and the SHA-256 of the Hub."""
    request = Request(file.url, headers={'User-Agent': 'trt_ros', **headers})
    if file.is_of_hub and (token := _hub_token()):
        request.add_unredirected_header('Authorization', f'Bearer {token}')
    redirects = _Redirects()
    problem, kind = f'{file} cannot be downloaded.', ModelError
    try:
        response = build_opener(redirects).open(request, timeout=TIMEOUT_SECONDS)
    except HTTPError as error:
        error.close()
        if error.code == 416:
            return None, ''
        remedy = 'Check the address, or try again later.'
        if error.code in (401, 403, 404):
            kind = _MissingError
            if file.is_of_hub:
                remedy = (
                    'Check the address. For a private or gated repository, accept its license on '
                    'the Hub, and set HF_TOKEN or run `hf auth login`.'
                )
        raise kind(problem, cause=f'HTTP {error.code}: {error.reason}', remedy=remedy) from error
    except (OSError, HTTPException) as error:
        raise ModelError(
            problem,
            cause=str(getattr(error, 'reason', error)),
            remedy='Connect this machine to the network, or copy the file and set its path.',
        ) from error
    if response.headers.get_content_type() == 'text/html':
        response.close()
        raise ModelError(
            problem,
            cause='It is a web page.',
            remedy='Use the address of the file itself (raw or download).',
        )
    return response, redirects.of_hub


def _hub_token() -> str:
    """Return the token for the Hub, from where its own tools read it; '' without."""
    home = os.environ.get('HF_HOME') or os.path.expanduser('~/.cache/huggingface')
    file = os.environ.get('HF_TOKEN_PATH') or f'{home}/token'
    with suppress(OSError, ValueError):
        return os.environ.get('HF_TOKEN') or Path(file).read_text().strip()
    return ''
