"""The four codecs of record batches, in the framings that Kafka's clients write and read.

| codec  | on the wire |
|---|---|
| gzip   | RFC 1952 members |
| snappy | Java writes xerial's framing (a magic, two versions, blocks with a length each), librdkafka one raw block |
| lz4    | LZ4 frames of independent blocks |
| zstd   | Zstandard frames, with or without a content size |

A few kilobytes may stand for gigabytes, so `decompress` never produces more than it was allowed to: the output buffer
is the bound, it grows with what really comes out, and a bomb is noticed when the allowance is full. Other threads run
meanwhile. Whole batches take long enough to belong into a thread; who calls decides.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from mmap import mmap
from struct import Struct
from typing import Final

import cramjam

from ottla.model.errors import ApiError, ErrorCode


class Codec(IntEnum):
    """The codec numbers of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


LZ4_LEVEL_DEFAULT: Final = 9
"""Kafka's name for "the fast one"; every other level asks for the thorough compressor."""

_LZ4_FAST: Final = 1
_LZ4_THOROUGH_MIN: Final = 3
_LZ4_THOROUGH_MAX: Final = 12
_GZIP_WINDOW_BITS: Final = 31
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LENGTH: Final = Struct(">i")
_FIRST_OUTPUT_BYTES: Final = 64 * 1024
_OUTPUT_GROWTH: Final = 4
_MAPPED_BYTES_MIN: Final = 2 << 20
_OUTPUT_FULL: Final = "failed to write whole buffer"
"""How cramjam says that the output buffer was too small, as opposed to input that makes no sense."""


def compress(codec: int, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """`data` in the codec's framing; `level` is in Kafka's scale for that codec, None its default."""
    if codec == Codec.NONE:
        return bytes(data)
    compressor = _COMPRESSORS.get(codec)
    if compressor is None:
        raise _unknown(codec)
    return compressor(data, level)


def decompress(codec: int, data: bytes | bytearray | memoryview, size_max: int) -> bytes:
    """What `data` stands for. Raises MESSAGE_TOO_LARGE beyond `size_max` bytes, CORRUPT_MESSAGE on nonsense."""
    if codec == Codec.NONE:
        if len(data) > size_max:
            raise _too_large(size_max)
        return bytes(data)
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise _unknown(codec)
    try:
        return decompressor(data, size_max)
    except cramjam.DecompressionError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"no {Codec(codec).name.lower()} data: {error}") from None


def decompress_into(codec: int, data: bytes | bytearray | memoryview, output: memoryview) -> int | None:
    """Write what `data` stands for to the start of `output`; returns how much that is, or None if it is too long.

    For callers who decompress many batches into one buffer. CORRUPT_MESSAGE on nonsense, as with `decompress`.
    """
    into = _INTO.get(codec)
    if into is None:
        try:
            plain = decompress(codec, data, len(output))
        except ApiError as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                return None
            raise
        output[: len(plain)] = plain
        return len(plain)
    try:
        return into(data, output)
    except cramjam.DecompressionError as error:
        if _OUTPUT_FULL in str(error):
            return None
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"no {Codec(codec).name.lower()} data: {error}") from None


def _gzip_compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return stream.compress(data) + stream.flush()


def _lz4_compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    """A frame of independent blocks: Java's reader refuses blocks that refer to the ones before them."""
    if level is None or level == LZ4_LEVEL_DEFAULT:
        level = _LZ4_FAST
    else:
        level = min(max(level, _LZ4_THOROUGH_MIN), _LZ4_THOROUGH_MAX)
    stream = cramjam.lz4.Compressor(level, content_checksum=False, block_linked=False)
    stream.compress(bytes(data))
    return bytes(stream.finish())


def _zstd_compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level))


def _snappy_compress(data: bytes | bytearray | memoryview, _level: int | None) -> bytes:
    """Xerial's framing, which every client reads; Java's reader takes raw blocks too, older ones do not."""
    view = memoryview(data)
    framed = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        framed += _LENGTH.pack(len(block))
        framed += block
    return bytes(framed)


_Into = Callable[[bytes | bytearray | memoryview, bytearray | memoryview], int]


def _decompress_bounded(into: _Into, data: bytes | bytearray | memoryview, size_max: int) -> bytes:
    """Decompress into a buffer that grows while it is too small and may."""
    capacity = min(max(_OUTPUT_GROWTH * len(data), _FIRST_OUTPUT_BYTES), size_max)
    while True:
        output = _room(capacity)
        try:
            return bytes(output[: into(data, output)])
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise
        if capacity >= size_max:
            raise _too_large(size_max)
        capacity = min(capacity * _OUTPUT_GROWTH, size_max)


def _room(size: int) -> memoryview:
    """Memory to write to. Much of it comes from the system, page by page as it is written: to clear dozens of megabytes
    beforehand, as `bytearray` does, would hold up every other thread for a tenth of a second."""
    return memoryview(mmap(-1, size) if size >= _MAPPED_BYTES_MIN else bytearray(size))


def _gzip_decompress(data: bytes | bytearray | memoryview, size_max: int) -> bytes:
    return _decompress_bounded(cramjam.gzip.decompress_into, data, size_max)


def _lz4_decompress(data: bytes | bytearray | memoryview, size_max: int) -> bytes:
    return _decompress_bounded(cramjam.lz4.decompress_into, data, size_max)


def _zstd_decompress(data: bytes | bytearray | memoryview, size_max: int) -> bytes:
    return _decompress_bounded(cramjam.zstd.decompress_into, data, size_max)


def _snappy_decompress(data: bytes | bytearray | memoryview, size_max: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(view, size_max)
    position, size_left, blocks = len(_XERIAL_HEADER), size_max, []
    while position < len(view):
        if len(view) - position < _LENGTH.size:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "snappy: a block without a length")
        (length,) = _LENGTH.unpack_from(view, position)
        position += _LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"snappy: a block of {length} bytes is not there")
        block = _snappy_block(view[position : position + length], size_left)
        blocks.append(block)
        size_left -= len(block)
        position += length
    return b"".join(blocks)


def _snappy_block(block: memoryview, size_max: int) -> bytes:
    """One raw block. It announces its size, which is checked before anything is allocated."""
    size = cramjam.snappy.decompress_raw_len(block)
    if size > size_max:
        raise _too_large(size_max)
    output = _room(size)
    return bytes(output[: cramjam.snappy.decompress_raw_into(block, output)])


def _too_large(size_max: int) -> ApiError:
    return ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"the batch decompresses to more than the allowed {size_max} bytes")


def _unknown(codec: int) -> ApiError:
    return ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {codec}")


_COMPRESSORS: Final[dict[int, Callable[[bytes | bytearray | memoryview, int | None], bytes]]] = {
    Codec.GZIP: _gzip_compress,
    Codec.SNAPPY: _snappy_compress,
    Codec.LZ4: _lz4_compress,
    Codec.ZSTD: _zstd_compress,
}
_DECOMPRESSORS: Final[dict[int, Callable[[bytes | bytearray | memoryview, int], bytes]]] = {
    Codec.GZIP: _gzip_decompress,
    Codec.SNAPPY: _snappy_decompress,
    Codec.LZ4: _lz4_decompress,
    Codec.ZSTD: _zstd_decompress,
}
_INTO: Final[dict[int, _Into]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
