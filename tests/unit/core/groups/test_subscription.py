"""Topics of a consumer's metadata, whatever the bytes are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.groups.subscription import subscribed_topics


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (b"\x00\x00\x00\x00\x00\x00", frozenset()),
        (b"\x00\x03\x00\x00\x00\x02\x00\x01a\x00\x02bcrest", {"a", "bc"}),
        (b"", None),
        (b"\x00\x00", None),
        (b"\x00\x00\xff\xff\xff\xff", None),
        (b"\x00\x00\x7f\xff\xff\xff", None),
        (b"\x00\x00\x00\x00\x00\x01\x00\x05a", None),
        (b"\x00\x00\x00\x00\x00\x01\xff\xff", None),
        (b"\x00\x00\x00\x00\x00\x01\x00\x01\xff", None),
    ],
)
def test_topics(metadata: bytes, topics: set[str] | None) -> None:
    assert subscribed_topics(metadata) == topics


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(metadata: bytes) -> None:
    subscribed_topics(metadata)
