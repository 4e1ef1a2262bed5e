"""What clients compressed can be read, what Ottla compressed can be read by them, and bombs do not go off."""

from __future__ import annotations

import contextlib
import gzip
import zlib

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.compression import Codec, compress, decompress, decompress_into
from tests.measured import least, peak_bytes, thread_seconds

CODECS = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"a sentence that is said again and again, " * 3000
MB = 1 << 20


@pytest.mark.parametrize("codec", Codec)
@given(data=st.binary(max_size=200) | st.binary(max_size=20).map(lambda piece: piece * 9000))
def test_what_was_compressed_comes_back(codec: Codec, data: bytes) -> None:
    compressed = compress(codec, memoryview(data))
    assert decompress(codec, compressed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(compressed)), MB) == data


LEVELS = {Codec.GZIP: [-1, 1, 9], Codec.LZ4: [1, 9, 17], Codec.ZSTD: [-131_072, 1, 3, 22]}


@pytest.mark.parametrize(("codec", "level"), [(codec, level) for codec, levels in LEVELS.items() for level in levels])
def test_every_level_that_kafka_has_works(codec: Codec, level: int) -> None:
    assert decompress(codec, compress(codec, TEXT, level), len(TEXT)) == TEXT


def test_a_thorough_level_compresses_better() -> None:
    varied = b"".join(b"user %d did %d at %d; " % (i, i * 7919 % 1000, i * i) for i in range(4000))
    assert len(compress(Codec.GZIP, varied, 9)) < len(compress(Codec.GZIP, varied, 1))
    assert len(compress(Codec.LZ4, varied, 17)) < len(compress(Codec.LZ4, varied))
    assert len(compress(Codec.ZSTD, varied, 19)) < len(compress(Codec.ZSTD, varied, 1))


def test_java_can_read_our_lz4() -> None:
    """Java's reader takes frames with independent blocks alone: bit 5 of the flags."""
    assert compress(Codec.LZ4, TEXT)[4] & 0x20


def test_older_clients_can_read_our_snappy() -> None:
    framed = compress(Codec.SNAPPY, TEXT)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + int.from_bytes(framed[16:20])])) == TEXT[: 32 * 1024]


def test_another_client_reads_what_we_compressed() -> None:
    assert aiokafka_codec.gzip_decode(compress(Codec.GZIP, TEXT)) == TEXT
    assert aiokafka_codec.snappy_decode(compress(Codec.SNAPPY, TEXT)) == TEXT
    assert aiokafka_codec.lz4_decode(compress(Codec.LZ4, TEXT)) == TEXT
    assert aiokafka_codec.zstd_decode(compress(Codec.ZSTD, TEXT)) == TEXT


OTHER_FRAMINGS = {
    "gzip with a file name": (Codec.GZIP, gzip.compress(TEXT)),
    "gzip in two members": (Codec.GZIP, gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:])),
    "raw snappy, as librdkafka writes it": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))),
    "lz4 with linked blocks and a checksum": (Codec.LZ4, bytes(cramjam.lz4.compress(TEXT))),
    "lz4 in two frames": (Codec.LZ4, compress(Codec.LZ4, TEXT[:100]) + compress(Codec.LZ4, TEXT[100:])),
    "zstd in two frames": (Codec.ZSTD, compress(Codec.ZSTD, TEXT[:100]) + compress(Codec.ZSTD, TEXT[100:])),
}


@pytest.mark.parametrize(("codec", "compressed"), OTHER_FRAMINGS.values(), ids=OTHER_FRAMINGS.keys())
def test_what_other_clients_may_write_is_read(codec: Codec, compressed: bytes) -> None:
    assert decompress(codec, compressed, len(TEXT)) == TEXT


def refused(codec: int, compressed: bytes, size_max: int) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        decompress(codec, compressed, size_max)
    return caught.value.code


@pytest.mark.parametrize("codec", Codec)
def test_one_byte_too_many_is_refused(codec: Codec) -> None:
    assert refused(codec, compress(codec, TEXT), len(TEXT) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    assert refused(codec, compress(codec, b"x"), 0) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_no_more_than_it_was_allowed(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * MB))

    def refuse() -> None:
        assert refused(codec, bomb, MB) is ErrorCode.MESSAGE_TOO_LARGE

    assert least(lambda: peak_bytes(refuse), 4 * MB) < 4 * MB
    assert least(lambda: thread_seconds(refuse), 0.5) < 0.5


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_goes_off_in_memory_that_the_interpreter_does_not_clear(codec: Codec) -> None:
    """It would hold its lock meanwhile, and whoever has another thread would wait."""
    bomb = compress(codec, bytes(64 * MB))

    def go_off() -> None:
        assert refused(codec, bomb, 64 * MB - 1) is ErrorCode.MESSAGE_TOO_LARGE

    assert peak_bytes(go_off) < 4 * MB


def test_a_snappy_block_that_announces_gigabytes_allocates_nothing() -> None:
    assert refused(Codec.SNAPPY, b"\xff\xff\xff\xff\x0fa", MB) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_stream_is_refused(codec: Codec) -> None:
    compressed = compress(codec, TEXT)
    for end in (1, 5, len(compressed) // 2, len(compressed) - 1):
        assert refused(codec, compressed[:end], MB) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-1, 7, (1 << 31) - 1])
def test_a_snappy_block_of_a_false_length_is_refused(length: int) -> None:
    framed = compress(Codec.SNAPPY, b"")
    assert refused(Codec.SNAPPY, framed + length.to_bytes(4, signed=True) + b"abc", MB) is ErrorCode.CORRUPT_MESSAGE
    assert refused(Codec.SNAPPY, framed + b"ab", MB) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", Codec)
def test_many_are_decompressed_into_one_buffer(codec: Codec) -> None:
    room = bytearray(len(TEXT) + 10)
    assert decompress_into(codec, compress(codec, TEXT), memoryview(room)[5:]) == len(TEXT)
    assert room == bytes(5) + TEXT + bytes(5)
    assert decompress_into(codec, compress(codec, TEXT), memoryview(room)[11:]) is None
    if codec is not Codec.NONE:
        with pytest.raises(ApiError) as caught:
            decompress_into(codec, b"this is nothing of the kind", memoryview(room))
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_unknown_codecs_are_refused() -> None:
    assert refused(5, b"", MB) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(ApiError):
        compress(7, b"")


@pytest.mark.fuzz
@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_damaged_streams_do_no_worse_than_be_refused(codec: Codec, data: st.DataObject) -> None:
    damaged = bytearray(compress(codec, TEXT[: data.draw(st.integers(0, 500))] + zlib.compress(TEXT)[:50]))
    for _ in range(data.draw(st.integers(1, 5))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ApiError):
        assert len(decompress(codec, damaged, MB)) <= MB


@pytest.mark.fuzz
@pytest.mark.parametrize("codec", CODECS)
@given(noise=st.binary(max_size=300))
def test_noise_is_refused(codec: Codec, noise: bytes) -> None:
    with contextlib.suppress(ApiError):
        assert len(decompress(codec, noise, MB)) <= MB
