"""Compression of the chunks of MCAP files."""

from contextlib import suppress
from typing import Any

from trt_ros.recording.messages import damaged

ZSTD_LEVEL = 1  # The fastest.
_STEP_NBYTES = 1 << 16


def compressed(content: bytes, compression: str) -> bytes:
    """Compress with 'zstd', 'lz4' or ''."""
    if compression == 'zstd':
        import zstandard

        return zstandard.ZstdCompressor(ZSTD_LEVEL).compress(content)
    if compression == 'lz4':
        from lz4.frame import compress

        return bytes(compress(content))
    return content


def decompressed(content: Any, compression: str, size: int) -> Any:
    """Decompress bytes or an array; BadFrameError for an unknown compression."""
    if compression == 'zstd':
        import zstandard

        return zstandard.ZstdDecompressor().decompress(content, max_output_size=size)
    if compression == 'lz4':
        from lz4.frame import decompress

        return decompress(content)
    if compression:
        raise damaged(f'Unsupported chunk compression {compression!r}.')
    return content


def decompressed_start(content: bytes, compression: str) -> bytes:
    """Return as much as can be decompressed."""
    if compression == 'zstd':
        import zstandard

        decompressor: Any = zstandard.ZstdDecompressor().decompressobj()
    elif compression == 'lz4':
        from lz4.frame import LZ4FrameDecompressor

        decompressor = LZ4FrameDecompressor()
    else:
        return b'' if compression else content
    found = bytearray()
    with suppress(Exception):  # Of any type, after the last whole block.
        for at in range(0, len(content), _STEP_NBYTES):
            found += decompressor.decompress(content[at : at + _STEP_NBYTES])
    return bytes(found)
