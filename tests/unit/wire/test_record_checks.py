"""A batch is looked into before a topic that asks for it takes it, and comes out of another codec as it went in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.batch import HEADER_BYTES, TRANSACTIONAL_BIT, check, read_header
from ottla.wire.compression import Codec
from ottla.wire.crc import crc32c
from ottla.wire.record_checks import recompress, refusal_of
from ottla.wire.records import Record, build_batch, iterate

CODECS = list(Codec)
RECORDS = [Record(offset, 1000 + offset, b"key %d" % offset, b"value " * 50, (("h", None),)) for offset in range(9)]


def build(codec: Codec, records: list[Record] = RECORDS) -> bytes:
    return bytes(
        build_batch(
            records, codec=codec, producer_id=5, producer_epoch=1, base_sequence=7, attributes=TRANSACTIONAL_BIT
        )
    )


@pytest.mark.parametrize("codec", CODECS)
def test_a_sound_batch_passes(codec: Codec) -> None:
    assert refusal_of(build(codec), requires_keys=True) is None


@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_topic_takes_no_record_without_a_key(codec: Codec) -> None:
    batch = build(codec, [*RECORDS, Record(9, 0, None, b"")])
    assert refusal_of(batch, requires_keys=False) is None
    refusal = refusal_of(batch, requires_keys=True)
    assert refusal is not None
    assert "record 9" in refusal


@pytest.mark.parametrize("codec", CODECS)
def test_a_body_that_lies_is_refused(codec: Codec) -> None:
    short = bytearray(build(codec))
    short[57:61] = (8).to_bytes(4, "big")
    assert refusal_of(bytes(short), requires_keys=False) is not None
    with pytest.raises(ApiError) as caught:
        recompress(bytes(short), Codec.NONE, None)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_body_that_does_not_decompress_is_refused(codec: Codec) -> None:
    broken = build(codec)[:HEADER_BYTES] + b"\xff" * 40
    assert refusal_of(broken, requires_keys=False) is not None
    with pytest.raises(ApiError):
        recompress(broken, Codec.NONE, None)


def test_a_bomb_is_refused() -> None:
    bomb = build(Codec.ZSTD, [Record(0, 0, b"k", bytes(1 << 20))])
    assert refusal_of(bomb, requires_keys=False, size_max=1 << 16) is not None


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_another_codec_changes_nothing_that_a_consumer_sees(source: Codec, target: Codec) -> None:
    batch = build(source)
    changed = bytearray(recompress(batch, target, None))
    assert iterate(changed) == iterate(batch)
    before, after = read_header(batch), check(memoryview(changed))
    assert after.codec == target
    assert after.crc == crc32c(changed[21:])
    assert after._replace(crc=0, length=0, attributes=0) == before._replace(crc=0, length=0, attributes=0)
    assert after.attributes & TRANSACTIONAL_BIT


@given(st.sampled_from(CODECS), st.binary(max_size=300), st.integers(1, 9))
def test_a_level_is_heeded_by_every_codec(codec: Codec, value: bytes, level: int) -> None:
    batch = build(Codec.NONE, [Record(0, 0, b"k", value)])
    assert iterate(recompress(batch, codec, level)) == iterate(batch)
