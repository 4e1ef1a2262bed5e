"""Blobs of classic consumers, as WIRE's messages write them and as anybody might send them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.core.groups.embedded_protocol import encode_assignment, parse_assignment, parse_subscription
from tests.unit.core.groups.blobs import subscription


def test_each_version_of_a_subscription_is_read() -> None:
    owned = {"t": (0, 1)}
    for version in range(4):
        read = parse_subscription(subscription("t", "u", version=version, owned=owned, generation=7, rack="r"))
        assert read is not None
        assert (read.version, read.topics) == (version, ("t", "u"))
        assert read.owned == ((("t", (0, 1)),) if version >= 1 else ())
        assert (read.generation, read.rack_id) == (7 if version >= 2 else -1, "r" if version >= 3 else None)


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    read = parse_subscription(subscription("t", version=9) + b"more")
    assert read is not None
    assert (read.version, read.topics) == (3, ("t",))


def test_an_assignment_comes_back() -> None:
    blob = encode_assignment(1, {"t": (0, 2), "u": ()})
    assert parse_assignment(blob) == (("t", (0, 2)), ("u", ()))
    assert parse_assignment(b"") == ()


@given(st.binary(max_size=60))
def test_anything_else_is_refused_without_a_fault(blob: bytes) -> None:
    read = parse_subscription(blob)
    assert read is None or sum(map(len, read.topics)) <= len(blob)
    assigned = parse_assignment(blob)
    assert assigned is None or len(assigned) <= len(blob)


@given(st.integers(0, 60))
def test_a_blob_that_was_cut_is_refused(length: int) -> None:
    whole = subscription("topic", version=3, owned={"topic": (1, 2, 3)}, generation=1, rack="rack")
    if length < len(whole):
        assert parse_subscription(whole[:length]) is None


def test_an_array_that_claims_to_be_huge_costs_nothing() -> None:
    assert parse_subscription(b"\x00\x00\x7f\xff\xff\xff") is None
    assert parse_assignment(b"\x00\x00\x7f\xff\xff\xff") is None
