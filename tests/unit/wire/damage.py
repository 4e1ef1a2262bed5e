"""Messages that a broken or hostile peer may send."""

from __future__ import annotations

from hypothesis import strategies as st

TELLING_BYTES = [0, 1, 2, 0x7F, 0x80, 0xFF]
"""Those that mean something in lengths, counts and flags."""


def damage(message: bytearray, data: st.DataObject) -> None:
    """Change, cut or extend a message in place, a little."""
    for position in data.draw(st.lists(st.integers(0, len(message) - 1), max_size=3)):
        message[position] = data.draw(st.sampled_from(TELLING_BYTES) | st.integers(0, 255))
    del message[data.draw(st.just(len(message)) | st.integers(0, len(message))) :]
    message += data.draw(st.just(b"") | st.binary(max_size=4))
