"""How a producer that was replaced is told so."""

from __future__ import annotations

from ottla.model.errors import ErrorCode


def fencing_code(code: ErrorCode, version: int, *, since: int) -> ErrorCode:
    """PRODUCER_FENCED is known from version `since` on; before it the same is INVALID_PRODUCER_EPOCH."""
    if code is ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
