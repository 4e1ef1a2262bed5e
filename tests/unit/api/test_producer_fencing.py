"""How a producer that was replaced is told so."""

from __future__ import annotations

from ottla.api.producer_fencing import fencing_code
from ottla.model.errors import ErrorCode


def test_only_versions_that_know_it_hear_that_they_are_fenced() -> None:
    assert fencing_code(ErrorCode.PRODUCER_FENCED, 1, since=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert fencing_code(ErrorCode.PRODUCER_FENCED, 2, since=2) is ErrorCode.PRODUCER_FENCED
    assert fencing_code(ErrorCode.INVALID_TXN_STATE, 1, since=2) is ErrorCode.INVALID_TXN_STATE
