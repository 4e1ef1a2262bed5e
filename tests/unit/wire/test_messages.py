"""Every message in every version says what Kafka's does, and no bytes from outside do harm.

The oracle is kio, which holds one class per message and version, made from Kafka's own definitions. The records of
internal topics are not in kio: for them there are bytes that Apache Kafka 4.3.0's own classes wrote, for metadata here,
for groups and transactions in the tests of their codecs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import importlib
import io
import pkgutil
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

import ottla.wire.messages
from ottla.model.errors import MalformedMessageError
from ottla.model.ids import ZERO_UUID
from ottla.wire.messages import group_records, metadata_records, transaction_records
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.schema import Message, decode, encode
from ottla.wire.schema_fields import ArrayOf, Binary, Field, Scalar, StructOf, Text, WireType, fields_of
from tests.measured import least, peak_bytes

ALLOCATED_MAX = 64 * 1024
SCALAR_RANGES = {
    "b": (-128, 127),
    "h": (-(1 << 15), (1 << 15) - 1),
    "i": (-(1 << 31), (1 << 31) - 1),
    "q": (-(1 << 63), (1 << 63) - 1),
    "H": (0, (1 << 16) - 1),
    "I": (0, (1 << 32) - 1),
}
KIO_RECORDS = {
    "LeaderChangeMessage": "leader_change_message",
    "SnapshotHeaderRecord": "snapshot_header_record",
    "SnapshotFooterRecord": "snapshot_footer_record",
    "KRaftVersionRecord": "k_raft_version_record",
    "VotersRecord": "voters_record",
    "ConsumerProtocolSubscription": "consumer_protocol_subscription",
    "ConsumerProtocolAssignment": "consumer_protocol_assignment",
    "DefaultPrincipalData": "default_principal_data",
}
KIO_TIMES = {"transaction_start_time_ms", "retention_time_ms", "session_lifetime_ms"}
"""Fields of 64 bits that kio makes times of, which hold less."""
KIO_FIELD_NAMES = {
    "k_raft_version": "kraft_version",
    "k_raft_version_feature": "kraft_version_feature",
    "id_": "id",
    "type_": "type",
}


def message_classes() -> Iterator[type[Message]]:
    for module_info in pkgutil.iter_modules(ottla.wire.messages.__path__, "ottla.wire.messages."):
        module = importlib.import_module(module_info.name)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value.__schema__ is not None:
                yield value


ALL_VERSIONS = [
    pytest.param(cls, version, id=f"{cls.__name__}-{version}")
    for cls in message_classes()
    if cls.__schema__ is not None
    for version in range(cls.__schema__.versions[0], cls.__schema__.versions[1] + 1)
]


# Random messages, the same ones in every run.


def random_message(cls: type[Message], version: int, rng: random.Random) -> Message:
    values = {field.name: random_value(field, version, rng) for field in fields_of(cls) if field.present(version)}
    return cls(**values)


def random_value(field: Field, version: int, rng: random.Random) -> object:
    if field.tag is not None and rng.random() < 0.3:
        return field.default
    if field.may_be_null(version) and rng.random() < 0.3:
        return None
    if field.name.endswith("error_code"):
        return int(rng.choice(list(KioErrorCode)))
    if "timestamp" in field.name or field.name in KIO_TIMES:
        return rng.randrange(0, 4 * 10**12)
    return random_wire_value(field.wire, version, rng)


def random_wire_value(wire: WireType, version: int, rng: random.Random) -> object:
    match wire:
        case Scalar("?"):
            return rng.random() < 0.5
        case Scalar("d"):
            return rng.uniform(-1e9, 1e9)
        case Scalar("16s"):
            return rng.choice([ZERO_UUID, UUID(int=rng.getrandbits(128))])
        case Scalar(code):
            low, high = SCALAR_RANGES[code]
            return rng.choice([low, high, 0, 1, rng.randint(low, high)])
        case Text():
            return "".join(rng.choices("aZ0.-_ é語🙂", k=rng.choice([0, 1, 7, 126, 127, 128, 300])))
        case Binary():
            return rng.randbytes(rng.choice([0, 1, 127, 300]))
        case ArrayOf(element):
            many = 200 if isinstance(element, Scalar) else 3
            return [random_wire_value(element, version, rng) for _ in range(rng.choice([0, 1, 2, 3, many]))]
        case StructOf(cls):
            assert issubclass(cls, Message)
            return random_message(cls, version, rng)


# The oracle.


def kio_class(cls: type[Message], version: int) -> Any:
    schema = cls.__schema__
    assert schema is not None
    if schema.api_key is None:
        module = importlib.import_module(f"kio.schema.{KIO_RECORDS[cls.__name__]}.v{version}.data")
    else:
        kind = "request" if cls.__name__.endswith("Request") else "response"
        module = importlib.import_module(f"kio.schema.{api_key_map[schema.api_key]}.v{version}.{kind}")
    return getattr(module, cls.__name__)


def assert_same(ours: Any, theirs: Any, version: int) -> None:
    """Compares field by field, by name: equal bytes would not notice two fields in the wrong order."""
    if isinstance(ours, Message):
        present = {field.name for field in fields_of(type(ours)) if field.present(version)}
        names = {item.name: kio_name(item.name, present) for item in dataclasses.fields(theirs)}
        assert set(names.values()) == present
        for theirs_name, ours_name in names.items():
            assert_same(getattr(ours, ours_name), getattr(theirs, theirs_name), version)
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for our_item, their_item in zip(ours, theirs, strict=True):
            assert_same(our_item, their_item, version)
    else:
        assert ours == kio_value(ours, theirs)


def kio_name(name: str, present: set[str]) -> str:
    name = KIO_FIELD_NAMES.get(name, name)
    return name if name in present else f"{name}_ms"


def kio_value(ours: object, theirs: object) -> object:
    match theirs:
        case datetime.timedelta():
            return round(theirs.total_seconds() * 1000)
        case datetime.datetime():
            return round(theirs.timestamp() * 1000)
        case None if ours == ZERO_UUID:
            return ZERO_UUID
    return theirs


IN_NO_KIO = {
    *metadata_records.RECORD_TYPES.values(),
    *(half for record_type in group_records.RECORD_TYPES.values() for half in record_type),
    transaction_records.TransactionLogKey,
    transaction_records.TransactionLogValue,
}
IN_KIO = [case for case in ALL_VERSIONS if case.values[0] not in IN_NO_KIO]
NOT_IN_KIO = [case for case in ALL_VERSIONS if case not in IN_KIO]


@pytest.mark.parametrize(("cls", "version"), IN_KIO)
def test_clients_read_what_we_write_and_we_read_what_they_write(cls: type[Message], version: int) -> None:
    theirs_class = kio_class(cls, version)
    read, write = entity_reader(theirs_class), entity_writer(theirs_class)
    rng = random.Random(f"{cls.__name__} {version}")
    for _ in range(20):
        ours = random_message(cls, version, rng)
        data = encode(ours, version)
        theirs, size = read(data, 0)
        assert size == len(data)
        assert_same(ours, theirs, version)
        written = io.BytesIO()
        write(written, theirs)
        assert decode(cls, written.getvalue(), version) == ours


@pytest.mark.parametrize(("cls", "version"), NOT_IN_KIO)
def test_records_come_back_from_the_log_as_they_went_in(cls: type[Message], version: int) -> None:
    rng = random.Random(f"{cls.__name__} {version}")
    for _ in range(20):
        ours = random_message(cls, version, rng)
        assert decode(cls, encode(ours, version), version) == ours


TOPIC = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
DIRECTORY = UUID("d0d1d2d3-d4d5-d6d7-d8d9-dadbdcdddedf")
WRITTEN_BY_KAFKA = [
    (metadata_records.NoOpRecord(), 0, "00"),
    (
        metadata_records.TopicRecord(name="orders", topic_id=TOPIC),
        0,
        "07 6f7264657273 0102030405060708090a0b0c0d0e0f10 00",
    ),
    (
        metadata_records.PartitionRecord(
            partition_id=3,
            topic_id=TOPIC,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            leader_epoch=4,
            partition_epoch=5,
            directories=[DIRECTORY, DIRECTORY],
            eligible_leader_replicas=[2],
            last_known_elr=[],
        ),
        2,
        "00000003 0102030405060708090a0b0c0d0e0f10 03 00000001 00000002 02 00000001 01 01 00000001 00000004 00000005"
        "03 d0d1d2d3d4d5d6d7d8d9dadbdcdddedf d0d1d2d3d4d5d6d7d8d9dadbdcdddedf 02 01 05 02 00000002 02 01 01",
    ),
    (
        metadata_records.PartitionChangeRecord(
            partition_id=3, topic_id=TOPIC, isr=[1, 2], leader=2, directories=[DIRECTORY]
        ),
        1,
        "00000003 0102030405060708090a0b0c0d0e0f10 03 00 09 03 00000001 00000002 01 04 00000002"
        "08 11 02 d0d1d2d3d4d5d6d7d8d9dadbdcdddedf",
    ),
    (
        metadata_records.RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=DIRECTORY,
            broker_epoch=9,
            end_points=[
                metadata_records.BrokerEndpoint(name="PLAINTEXT", host="localhost", port=59092, security_protocol=0)
            ],
            features=[
                metadata_records.BrokerFeature(
                    name="metadata.version", min_supported_version=7, max_supported_version=29
                )
            ],
            rack=None,
            fenced=False,
            log_dirs=[DIRECTORY],
        ),
        3,
        "00000001 00 d0d1d2d3d4d5d6d7d8d9dadbdcdddedf 0000000000000009 02 0a 504c41494e54455854 0a 6c6f63616c686f7374"
        "e6d4 0000 00 02 11 6d657461646174612e76657273696f6e 0007 001d 00 00 00 00"
        "01 00 11 02 d0d1d2d3d4d5d6d7d8d9dadbdcdddedf",
    ),
    (
        metadata_records.ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value=None),
        0,
        "02 07 6f7264657273 0d 726574656e74696f6e2e6d73 00 00",
    ),
    (
        metadata_records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, fenced=-1),
        1,
        "00000001 0000000000000009 01 00 01 ff",
    ),
]


@pytest.mark.parametrize(("record", "version", "written"), WRITTEN_BY_KAFKA, ids=lambda value: type(value).__name__)
def test_kafkas_tools_read_our_metadata_log(record: Message, version: int, written: str) -> None:
    assert encode(record, version) == bytes.fromhex(written)
    assert decode(type(record), bytes.fromhex(written), version) == record


def test_every_metadata_record_is_found_by_its_type() -> None:
    for key, cls in metadata_records.RECORD_TYPES.items():
        assert cls.__schema__ is not None
        assert cls.__schema__.api_key == key


def test_every_group_record_is_found_by_its_type() -> None:
    for key, halves in group_records.RECORD_TYPES.items():
        assert [half.__schema__ and half.__schema__.api_key for half in halves] == [key, key]


# What is no message.


def mutated(data: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(damaged) + 1)
        match rng.randrange(4):
            case 0:
                damaged[at : at + 1] = bytes([rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])])
            case 1:
                del damaged[at : at + rng.randint(1, 8)]
            case 2:
                damaged[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                damaged[at : at + 5] = b"\xff\xff\xff\xff\x07"
    return bytes(damaged)


@pytest.mark.parametrize(("cls", "version"), ALL_VERSIONS)
def test_damaged_bytes_are_a_message_or_malformed_and_nothing_else(cls: type[Message], version: int) -> None:
    rng = random.Random(f"damage {cls.__name__} {version}")
    for _ in range(5):
        data = encode(random_message(cls, version, rng), version)
        for _ in range(30):
            damaged = mutated(data, rng)
            with contextlib.suppress(MalformedMessageError):
                assert isinstance(decode(cls, damaged, version), cls)


@pytest.mark.parametrize(("cls", "version"), ALL_VERSIONS)
def test_a_message_cut_short_or_with_more_behind_it_is_malformed(cls: type[Message], version: int) -> None:
    data = encode(random_message(cls, version, random.Random(f"cut {cls.__name__} {version}")), version)
    for end in sorted({*range(0, len(data), max(1, len(data) // 100)), *range(len(data) - 5, len(data))}):
        if 0 <= end < len(data):
            with pytest.raises(MalformedMessageError):
                decode(cls, data[:end], version)
    if cls.__schema__ is not None and cls.__schema__.tail_ignored:
        assert encode(decode(cls, data + b"\0", version), version) == data
    else:
        with pytest.raises(MalformedMessageError):
            decode(cls, data + b"\0", version)


def test_metadata_of_all_topics_is_what_librdkafka_asks_for() -> None:
    """Version 2.16 has room for a longer array there and leaves it in the request."""
    asked = decode(MetadataRequest, bytes.fromhex("00000000 01 00 00"), 13)
    assert asked.topics is None


@pytest.mark.parametrize(("cls", "version"), ALL_VERSIONS)
def test_no_length_makes_the_broker_allocate(cls: type[Message], version: int) -> None:
    """Lengths that lie at every place of a small frame; what is allocated stays in proportion to the frame."""
    data = encode(random_message(cls, version, random.Random(f"lie {cls.__name__} {version}")), version)[:100]
    decoder = cls.__decoders__[version]

    def decode_lie(at: int, lie: bytes) -> None:
        with contextlib.suppress(MalformedMessageError):
            decoder(data[:at] + lie + data[at + len(lie) :], 0)

    for at in range(len(data)):
        for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff", b"\x00\x98\x96\x80"):
            work = functools.partial(decode_lie, at, lie)
            assert least(lambda work=work: peak_bytes(work), ALLOCATED_MAX) < ALLOCATED_MAX


def test_importing_one_api_imports_no_other() -> None:
    script = (
        "import sys, ottla.wire.messages.metadata; print(*(name for name in sys.modules if 'wire.messages.' in name))"
    )
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert output.split() == ["ottla.wire.messages.metadata"]
