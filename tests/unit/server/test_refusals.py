"""A misbehaving client fills no log, and the one line about it says what is wrong."""

from __future__ import annotations

from structlog.testing import capture_logs

from ottla.server.refusals import PEERS_REMEMBERED_MAX, QUIET_SECONDS, Refusals, recognise


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_one_line_per_peer_and_while() -> None:
    clock = Clock()
    refusals = Refusals(clock)
    with capture_logs() as lines:
        for _ in range(5):
            refusals.note("192.0.2.1", "PLAINTEXT", "no request")
        refusals.note("192.0.2.2", "PLAINTEXT", "no request")
        clock.now += QUIET_SECONDS
        refusals.note("192.0.2.1", "PLAINTEXT", "still none")
    assert [(line["peer"], line["reason"], line.get("left_out")) for line in lines] == [
        ("192.0.2.1", "no request", None),
        ("192.0.2.2", "no request", None),
        ("192.0.2.1", "still none", 4),
    ]


def test_peers_are_forgotten_before_they_fill_memory() -> None:
    refusals = Refusals(Clock())
    with capture_logs():
        for number in range(3 * PEERS_REMEMBERED_MAX):
            refusals.note(f"peer {number}", "PLAINTEXT", "no request")
    assert len(refusals._peers) <= PEERS_REMEMBERED_MAX


def test_other_protocols_are_known_by_their_first_bytes() -> None:
    assert "TLS" in (recognise(b"\x16\x03\x01\x02") or "")
    assert "HTTP" in (recognise(b"POST") or "")
    assert "SSH" in (recognise(b"SSH-") or "")
    assert recognise(b"\xff\xff\xff\xff") is None
