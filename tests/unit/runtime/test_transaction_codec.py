"""What is written into `__transaction_state` is what Kafka writes, comes back as it was, and damage harms nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.transactions.records import TransactionRecord, TransactionState
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.runtime.transaction_codec import decode, encode

NOW = 1_700_000_000_000
KEY = bytes.fromhex("0000 0002 7478")
PARTITIONS = frozenset({TopicPartition("orders", 0), TopicPartition("orders", 2)})
ONGOING = TransactionRecord(
    transactional_id="tx",
    producer_id=1000,
    previous_producer_id=999,
    next_producer_id=1001,
    producer_epoch=4,
    next_producer_epoch=0,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=PARTITIONS,
    last_update_timestamp=NOW + 1,
    start_timestamp=NOW,
    client_transaction_version=2,
)
EMPTY = TransactionRecord(
    transactional_id="tx", producer_id=1000, producer_epoch=0, timeout_ms=60_000, last_update_timestamp=NOW + 1
)


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (
            ONGOING,
            "0001 00000000000003e8 0004 0000ea60 01 02 07 6f7264657273 03 00000000 00000002 00 0000018bcfe56801"
            "0000018bcfe56800 04 00 08 00000000000003e7 01 08 00000000000003e9 02 02 0002 03 02 0000",
        ),
        (EMPTY, "0001 00000000000003e8 0000 0000ea60 00 00 0000018bcfe56801 ffffffffffffffff 00"),
    ],
    ids=["ongoing", "empty"],
)
def test_the_bytes_are_those_that_kafka_writes(record: TransactionRecord, value: str) -> None:
    assert encode(record) == (KEY, bytes.fromhex(value))
    assert decode(KEY, bytes.fromhex(value)) == record


def test_the_first_version_is_read_and_written_where_the_level_wants_it() -> None:
    value = (
        "0000 00000000000003e8 0004 0000ea60 01 00000001 0006 6f7264657273 00000002 00000000 00000002"
        "0000018bcfe56801 0000018bcfe56800"
    )
    assert decode(KEY, bytes.fromhex(value)) == TransactionRecord(
        transactional_id="tx",
        producer_id=1000,
        producer_epoch=4,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=PARTITIONS,
        last_update_timestamp=NOW + 1,
        start_timestamp=NOW,
    )
    assert encode(ONGOING, 0) == (KEY, bytes.fromhex(value))


def test_a_tombstone_has_no_value() -> None:
    gone = TransactionRecord(transactional_id="tx", gone=True)
    assert encode(gone) == (KEY, None)
    assert decode(KEY, None) == gone


int16s = st.integers(-(1 << 15), (1 << 15) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
partitions = st.frozensets(st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 1 << 20)), max_size=5)
records = st.builds(
    TransactionRecord,
    transactional_id=st.text(max_size=20),
    producer_id=int64s,
    previous_producer_id=int64s,
    next_producer_id=int64s,
    producer_epoch=int16s,
    next_producer_epoch=int16s,
    timeout_ms=st.integers(-(1 << 31), (1 << 31) - 1),
    state=st.sampled_from([state for state in TransactionState if state is not TransactionState.EMPTY]),
    partitions=partitions,
    last_update_timestamp=int64s,
    start_timestamp=int64s,
    client_transaction_version=int16s,
    gone=st.just(False),
)


@given(records)
def test_a_record_comes_back_as_it_went_in(record: TransactionRecord) -> None:
    assert decode(*encode(record)) == record


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", None),
        (bytes.fromhex("0001 0002 7478"), None),
        (bytes.fromhex("0000 0003 7478"), None),
        (KEY, b""),
        (KEY, b"\0\2" + bytes(30)),
        (KEY, bytes.fromhex("0001 00000000000003e8 0000 0000ea60 08 00 0000018bcfe56801 ffffffffffffffff 00")),
    ],
    ids=["no key", "half a key", "other type", "short key", "no value", "other version", "other state"],
)
def test_what_nobody_knows_is_no_record(key: bytes, value: bytes | None) -> None:
    assert decode(key, value) is None


@pytest.mark.fuzz
@given(records, st.data())
def test_damage_is_a_record_or_none(record: TransactionRecord, data: st.DataObject) -> None:
    damaged = [bytearray(half or b"") for half in encode(record)]
    for half in damaged:
        at = data.draw(st.integers(0, len(half)))
        half[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    read = decode(bytes(damaged[0]), bytes(damaged[1]))
    assert read is None or isinstance(read, TransactionRecord)


def test_an_id_that_no_key_holds_is_the_clients_mistake() -> None:
    with pytest.raises(ApiError) as raised:
        encode(TransactionRecord(transactional_id="t" * 32768))
    assert raised.value.code is ErrorCode.INVALID_REQUEST
