"""A batch is looked into before a topic that asks for it takes it, and comes out of another codec as it went in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ApiError, ErrorCode, InvalidRecordsError
from ottla.wire.batch import HEADER_BYTES, TRANSACTIONAL_BIT, check, read_header, set_max_timestamp
from ottla.wire.compression import Codec
from ottla.wire.crc import crc32c
from ottla.wire.record_checks import RECORD_ERRORS_MAX, recompress, validated
from ottla.wire.records import Record, build_batch, iterate

CODECS = list(Codec)
RECORDS = [Record(offset, 1000 + offset, b"key %d" % offset, b"value " * 50, (("h", None),)) for offset in range(9)]


def build(codec: Codec, records: list[Record] = RECORDS) -> bytes:
    return bytes(
        build_batch(
            records, codec=codec, producer_id=5, producer_epoch=1, base_sequence=7, attributes=TRANSACTIONAL_BIT
        )
    )


def refusal_of(batch: bytes, *, requires_keys: bool = False, size_max: int = 1 << 20) -> ApiError:
    with pytest.raises(ApiError) as caught:
        validated(batch, requires_keys=requires_keys, size_max=size_max)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    return caught.value


@pytest.mark.parametrize("codec", CODECS)
def test_a_sound_batch_passes(codec: Codec) -> None:
    batch = build(codec)
    assert validated(batch, requires_keys=True) is batch
    assert validated(batch, requires_keys=True, timestamp_range=(1000, 1008)) is batch


@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_topic_takes_no_record_without_a_key(codec: Codec) -> None:
    batch = build(codec, [*RECORDS, Record(9, 0, None, b""), Record(10, 0, b"", b""), Record(11, 0, None, b"")])
    assert validated(batch, requires_keys=False) is batch
    refusal = refusal_of(batch, requires_keys=True)
    assert isinstance(refusal, InvalidRecordsError)
    assert [record for record, _ in refusal.record_errors] == [9, 11]
    assert "2 of the batch's 12 records" in refusal.message
    assert "record 9: Compacted topic cannot accept message without key" in refusal.message


def test_a_refusal_has_a_bounded_length() -> None:
    refusal = refusal_of(build(Codec.NONE, [Record(at, 0, None, b"") for at in range(1000)]), requires_keys=True)
    assert isinstance(refusal, InvalidRecordsError)
    assert [record for record, _ in refusal.record_errors] == list(range(RECORD_ERRORS_MAX))
    assert "1000 of" in refusal.message
    assert len(refusal.message) < 300


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_another_time_are_named_and_one_of_them_decides_on_the_code(codec: Codec) -> None:
    times = [5000, 3999, -1, 4000, 6001, 6000]
    records = [Record(at, time, b"k", b"") for at, time in enumerate(times)]
    batch = build(codec, [*records, Record(6, 5000, None, b"")])
    with pytest.raises(InvalidRecordsError) as caught:
        validated(batch, requires_keys=True, timestamp_range=(4000, 6000))
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    (early, why_early), (late, why_late), (keyless, why_keyless) = caught.value.record_errors
    assert (early, late, keyless) == (1, 4, 6)
    assert "3999" in why_early
    assert "6001" in why_late
    assert "key" in why_keyless


def test_a_time_that_is_wrong_decides_on_the_code_even_where_it_is_not_named() -> None:
    records = [Record(at, 1, None, b"") for at in range(RECORD_ERRORS_MAX)]
    batch = build(Codec.NONE, [*records, Record(RECORD_ERRORS_MAX, 0, b"k", b"")])
    with pytest.raises(InvalidRecordsError) as caught:
        validated(batch, requires_keys=True, timestamp_range=(1, 1))
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [-1, 0, 1007, 1009, 2**62])
def test_a_header_that_lies_about_its_youngest_record_is_corrected(codec: Codec, claimed: int) -> None:
    honest = build(codec)
    lying = bytearray(honest)
    set_max_timestamp(memoryview(lying), claimed)
    assert validated(bytes(lying), requires_keys=False, timestamp_range=(0, 5000)) == honest
    assert validated(bytes(lying), requires_keys=False) == lying


@pytest.mark.parametrize("codec", CODECS)
def test_a_body_that_lies_is_refused(codec: Codec) -> None:
    short = bytearray(build(codec))
    short[57:61] = (8).to_bytes(4, "big")
    refusal = refusal_of(bytes(short))
    assert not isinstance(refusal, InvalidRecordsError)
    assert "bytes are left" in refusal.message
    with pytest.raises(ApiError) as caught:
        recompress(bytes(short), Codec.NONE, None)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_that_is_malformed_is_named(codec: Codec) -> None:
    good = build(Codec.NONE, [Record(at, 1000, b"k", b"v") for at in range(3)])
    body = bytearray(good[HEADER_BYTES:])
    body[len(body) // 3 + 4] = 0x7E  # The length of the second record's key.
    plain = good[:HEADER_BYTES] + bytes(body)
    for refusal in (refusal_of(plain), recompress_refusal(plain, codec)):
        assert isinstance(refusal, InvalidRecordsError)
        ((record, reason),) = refusal.record_errors
        assert record == 1
        assert reason.startswith("its key is malformed")
        assert refusal.message == f"record 1: {reason}"


def recompress_refusal(batch: bytes, codec: Codec) -> ApiError:
    with pytest.raises(ApiError) as caught:
        recompress(batch, codec, None)
    return caught.value


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_body_that_does_not_decompress_is_refused(codec: Codec) -> None:
    broken = build(codec)[:HEADER_BYTES] + b"\xff" * 40
    refusal_of(broken)
    with pytest.raises(ApiError):
        recompress(broken, Codec.NONE, None)


def test_a_bomb_is_refused() -> None:
    bomb = build(Codec.ZSTD, [Record(0, 0, b"k", bytes(1 << 20))])
    refusal_of(bomb, size_max=1 << 16)


@pytest.mark.parametrize("target", CODECS)
def test_another_codec_must_not_make_a_batch_too_long(target: Codec) -> None:
    batch = build(Codec.GZIP if target != Codec.GZIP else Codec.NONE)
    size = len(recompress(batch, target, None))
    assert len(recompress(batch, target, None, size)) == size
    with pytest.raises(ApiError) as caught:
        recompress(batch, target, None, size - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


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
