"""What a declared message promises, shown on messages of our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import pytest

from ottla.model.errors import ApiError, ErrorCode, MalformedMessageError
from ottla.model.ids import ZERO_UUID
from ottla.wire.schema import (
    Bool,
    Bytes,
    EncodeError,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Uint16,
    Uint32,
    Uuid,
    decode,
    encode,
    encode_into,
    ignorable,
    nullable_since,
    since,
    tag,
    until,
)


class Place(Message):
    street: String
    number: Int32


class Parcel(Message, api_key=99, versions=(0, 4), flexible_since=2):
    """One field of every kind that differs between versions."""

    weight: Int32
    name: Annotated[String | None, nullable_since(1)]
    places: Sequence[Place] = []
    numbers: Sequence[Int16] | None = None
    old: Annotated[Int32, until(1)] = -1
    note: Annotated[String | None, since(1), ignorable] = None
    strict: Annotated[Int64, since(3)] = 7
    label: Annotated[String, since(2), tag(0)] = "none"
    marks: Annotated[Sequence[Place], since(2), tag(5)] = []
    home: Annotated[Place | None, since(4)] = None


class Scalars(Message, versions=(0, 1), flexible_since=1):
    int8: Int8
    int16: Int16
    int32: Int32
    int64: Int64
    uint16: Uint16
    uint32: Uint32
    float64: Float64
    flag: Bool
    id: Uuid
    data: Bytes
    more: Bytes | None


class Names(Message, versions=(0, 1), flexible_since=1):
    names: Sequence[String]


class Ids(Message, versions=(0, 1), flexible_since=1):
    ids: Sequence[Uuid]


class Text(Message, versions=(0, 1), flexible_since=1):
    text: String


class MovedToTag(Message, versions=(0, 3), flexible_since=1):
    """A field that became a tagged one later than the message became flexible."""

    value: Annotated[Int32, tag(1, since=2)] = 0


# What the bytes are.


def test_old_versions_have_plain_lengths() -> None:
    parcel = Parcel(weight=1, name="ab", places=[Place(street="s", number=2)], numbers=[3], old=4)
    expected = "00000001 0002 6162 00000001 0001 73 00000002 00000001 0003 00000004"
    assert encode(parcel, 0) == bytes.fromhex(expected)


def test_flexible_versions_have_compact_lengths_and_tags() -> None:
    parcel = Parcel(weight=1, name=None, places=[Place(street="s", number=2)], numbers=[3], label="x")
    expected = "00000001 00 02 02 73 00000002 00 02 0003 00 01 00 02 02 78"
    assert encode(parcel, 2) == bytes.fromhex(expected)


def test_a_tagged_field_with_its_default_is_not_sent() -> None:
    assert encode(Parcel(weight=1, name=None), 2) == bytes.fromhex("00000001 00 01 00 00 00")


def test_tags_are_sent_in_their_order() -> None:
    data = encode(Parcel(weight=1, name=None, label="x", marks=[Place(street="", number=1)]), 2)
    assert data == bytes.fromhex("00000001 00 01 00 00 02 00 02 02 78 05 07 02 01 00000001 00")


def test_a_struct_that_may_be_null_has_a_byte_that_says_so() -> None:
    without = encode(Parcel(weight=1, name=None), 4)
    inside = encode(Parcel(weight=1, name=None, home=Place(street="s", number=2)), 4)
    assert without.endswith(bytes.fromhex("ff 00"))
    assert inside.endswith(bytes.fromhex("01 02 73 00000002 00 00"))


@pytest.mark.parametrize(
    ("version", "data"),
    [(0, "0000000a"), (1, "0000000a 00"), (2, "01 01 04 0000000a"), (3, "01 01 04 0000000a")],
)
def test_a_field_may_move_into_the_tags(version: int, data: str) -> None:
    assert encode(MovedToTag(value=10), version) == bytes.fromhex(data)
    assert decode(MovedToTag, bytes.fromhex(data), version).value == 10


@pytest.mark.parametrize("version", range(5))
def test_every_version_reads_what_it_wrote(version: int) -> None:
    parcel = Parcel(
        weight=-5,
        name="é" * 100,
        places=[Place(street=str(number), number=number) for number in range(300)],
        numbers=range(-100, 100),
        old=9 if version <= 1 else -1,
        note="n" if version >= 1 else None,
        strict=8 if version >= 3 else 7,
        label="l" * 200 if version >= 2 else "none",
        marks=[Place(street="m", number=0)] if version >= 2 else [],
        home=Place(street="h", number=1) if version >= 4 else None,
    )
    again = decode(Parcel, encode(parcel, version), version)
    parcel.numbers = list(range(-100, 100))
    assert again == parcel


@pytest.mark.parametrize("version", [0, 1])
def test_scalars_keep_their_whole_range(version: int) -> None:
    high = Scalars(
        int8=127,
        int16=(1 << 15) - 1,
        int32=(1 << 31) - 1,
        int64=(1 << 63) - 1,
        uint16=(1 << 16) - 1,
        uint32=(1 << 32) - 1,
        float64=0.1,
        flag=True,
        id=UUID(int=(1 << 128) - 1),
        data=b"\0" * 1000,
        more=None,
    )
    low = Scalars(
        int8=-128,
        int16=-(1 << 15),
        int32=-(1 << 31),
        int64=-(1 << 63),
        uint16=0,
        uint32=0,
        float64=float("-inf"),
        flag=False,
        id=ZERO_UUID,
        data=b"",
        more=b"",
    )
    for message in (high, low):
        assert decode(Scalars, encode(message, version), version) == message


def test_a_message_outlives_the_buffer_it_came_in() -> None:
    buffer = bytearray(b"??" + encode(Text(text="kept"), 1))
    message = decode(Text, memoryview(buffer), 1, 2)
    buffer[:] = bytes(len(buffer))
    assert message.text == "kept"


def test_a_prefix_and_the_message_are_one_byte_string() -> None:
    parts = [b"head"]
    encode_into(Text(text="x"), 1, parts)
    assert b"".join(parts) == encode(Text(text="x"), 1, b"head") == b"head\x02x\0"


# Versions.


def test_a_class_says_its_key_and_versions() -> None:
    schema = Parcel.__schema__
    assert schema is not None
    assert (schema.api_key, schema.versions, schema.flexible_since) == (99, (0, 4), 2)
    assert not schema.flexible(1)
    assert schema.flexible(2)
    assert Place.__schema__ is None


@pytest.mark.parametrize("version", [-1, 5])
def test_a_version_that_nobody_speaks_is_refused(version: int) -> None:
    with pytest.raises(ApiError, match="Parcel has versions 0 to 4") as refusal:
        decode(Parcel, b"", version)
    assert refusal.value.code == ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(ApiError, match="Parcel has versions 0 to 4"):
        encode(Parcel(weight=1, name=None), version)


def test_an_ignorable_field_is_dropped_where_the_version_lacks_it() -> None:
    assert decode(Parcel, encode(Parcel(weight=1, name="", note="x"), 0), 0).note is None


def test_a_field_that_must_not_be_lost_is_refused_where_the_version_lacks_it() -> None:
    with pytest.raises(ApiError, match="Parcel version 2 has no field strict") as refusal:
        encode(Parcel(weight=1, name="", strict=8), 2)
    assert refusal.value.code == ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(ApiError, match="Parcel version 2 has no field old"):
        encode(Parcel(weight=1, name="", old=8), 2)
    with pytest.raises(ApiError, match="Parcel version 1 has no field marks"):
        encode(Parcel(weight=1, name="", marks=[Place(street="", number=0)]), 1)


def test_a_part_of_messages_has_no_bytes_of_its_own() -> None:
    with pytest.raises(TypeError, match="Place is a part of other messages"):
        decode(Place, b"", 0)


def test_a_field_that_is_not_always_there_needs_a_default() -> None:
    class Forgetful(Message, versions=(0, 1), flexible_since=0):
        value: Annotated[Int32, since(1), tag(0)]

    with pytest.raises(TypeError, match=r"Forgetful\.value .* needs a default"):
        decode(Forgetful, b"\0", 0)


# What cannot be written.


@pytest.mark.parametrize(
    "parcel",
    [
        Parcel(weight=1 << 31, name=""),
        Parcel(weight=1, name="", places=None),  # type: ignore[arg-type]
        Parcel(weight=1, name="\ud800"),
        Parcel(weight=1, name="", numbers=[1 << 15]),
        Parcel(weight=1, name="", places=[None]),  # type: ignore[list-item]
        Parcel(weight=1, name="x" * 32768),
    ],
    ids=[
        "too large an int",
        "a null array",
        "a lone surrogate",
        "too large an element",
        "null in an array",
        "too long",
    ],
)
@pytest.mark.parametrize("version", [0, 4])
def test_a_value_that_does_not_fit_is_an_encode_error(parcel: Parcel, version: int) -> None:
    with pytest.raises(EncodeError, match=f"Parcel version {version}: "):
        encode(parcel, version)


def test_null_is_refused_where_the_version_has_none() -> None:
    with pytest.raises(EncodeError):
        encode(Parcel(weight=1, name=None), 0)


# What is no message.


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        pytest.param(Text, 0, "0005 6162", id="a string longer than the frame"),
        pytest.param(Text, 0, "ffff", id="a null string"),
        pytest.param(Text, 0, "fffe", id="a negative length"),
        pytest.param(Text, 0, "0002 c328", id="a string that is not UTF-8"),
        pytest.param(Text, 0, "0001 61 00", id="bytes after the message"),
        pytest.param(Text, 0, "", id="nothing"),
        pytest.param(Text, 1, "00 00", id="a null compact string"),
        pytest.param(Text, 1, "06 6162 00", id="a compact string longer than the frame"),
        pytest.param(Text, 1, "02 ff 00", id="a compact string that is not UTF-8"),
        pytest.param(Text, 1, "ffffffff7f 00", id="a varint beyond 32 bits"),
        pytest.param(Text, 1, "8080808080 01 00", id="a varint of six bytes"),
        pytest.param(Text, 1, "80", id="a varint cut short"),
        pytest.param(Text, 1, "81 8002" + "61" * 32768 + "00", id="a string longer than Kafka's clients take"),
        pytest.param(Text, 1, "01", id="no tags"),
        pytest.param(Text, 1, "01 01", id="a tag cut short"),
        pytest.param(Text, 1, "01 01 00 05 00", id="a tag longer than the frame"),
        pytest.param(Text, 1, "01 ffffffff0f", id="four billion tags"),
        pytest.param(Names, 0, "7fffffff", id="two billion elements"),
        pytest.param(Names, 0, "00000002 0000 00", id="an array longer than the frame"),
        pytest.param(Names, 0, "ffffffff", id="a null array"),
        pytest.param(Names, 1, "00 00", id="a null compact array"),
        pytest.param(Names, 1, "ffffffff0f 00", id="four billion elements"),
        pytest.param(Ids, 0, "00000002" + "00" * 31, id="an array of ids cut short"),
        pytest.param(Ids, 1, "03" + "00" * 31, id="a compact array of ids cut short"),
        pytest.param(Parcel, 0, "00000001 ffff 00000000 00000000 ffffffff", id="null before it was allowed"),
        pytest.param(Parcel, 2, "00000001 00 01 00 00 01 00 03 02 78", id="a tagged field shorter than it says"),
        pytest.param(Parcel, 2, "00000001 00 01 00 00 01 00 01 02 78", id="a tagged field longer than it says"),
    ],
)
def test_what_is_no_message_is_malformed(cls: type[Message], version: int, data: str) -> None:
    with pytest.raises(MalformedMessageError):
        decode(cls, bytes.fromhex(data), version)


def test_tags_that_nobody_knows_are_skipped() -> None:
    parcel = "00000001 00 01 00 00"
    known, unknown = "00 02 02 78", "07 03 616263 80 01 00"
    message = decode(Parcel, bytes.fromhex(f"{parcel} 03 {known} {unknown}"), 2)
    assert message == Parcel(weight=1, name=None, label="x")
    assert decode(Text, bytes.fromhex(f"02 61 02 {unknown}"), 1) == Text(text="a")


def test_an_array_whose_elements_take_no_bytes_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="nothing bounds the length of elements"):
        decode(Hollow, b"", 0)


class Empty(Message):
    """A struct without fields."""


class Hollow(Message, versions=(0, 0)):
    elements: Sequence[Empty]
