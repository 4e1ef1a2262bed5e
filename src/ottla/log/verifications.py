"""The transactions that a log waits to hear of from their coordinators.

The first batch of a transaction is written only after the transaction's coordinator has said that it knows of this
partition (`runtime.transaction_verification` asks). What is being asked is noted here, so that a marker that comes
before the batch takes the permission away: the transaction it was given for is over, and the next one of the same
producer is another. A note stays when the coordinator could not be asked, since the producer comes again with the same
batch and a later one must not pass it.
"""

from __future__ import annotations

from typing import Final

from ottla.model.errors import ApiError, ErrorCode

VERIFICATIONS_MAX: Final = 1000
"""Producers that may wait for their coordinator's word at one time, on one partition."""


class Verification:
    """That a coordinator is being asked about a producer's transaction. Compared by identity."""

    __slots__ = ("begins_anew", "epoch", "lowest_sequence", "started_ms")

    def __init__(self, epoch: int, sequence: int, started_ms: int, *, begins_anew: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        """Of the batches that were held up: those behind the first must not be written before it."""
        self.started_ms = started_ms
        self.begins_anew = begins_anew
        """The producer counts from 0 in every transaction."""


class Verifications:
    """What is being asked for the producers of one log."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: dict[int, Verification] = {}

    def begin(self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, begins_anew: bool) -> Verification:
        """Note that a coordinator is being asked whether a batch may begin a transaction here."""
        asked = self._asked.get(producer_id)
        if asked is None:
            if len(self._asked) >= VERIFICATIONS_MAX:
                del self._asked[next(iter(self._asked))]
            asked = self._asked[producer_id] = Verification(epoch, sequence, now_ms, begins_anew=begins_anew)
        elif epoch > asked.epoch or (epoch == asked.epoch and sequence < asked.lowest_sequence):
            asked.epoch, asked.lowest_sequence = epoch, sequence
        return asked

    def check(
        self, producer_id: int, sequence: int, verification: Verification | None, *, knows_producer: bool
    ) -> None:
        """Right before the batch is written: nothing has come in between. `knows_producer`: it has batches here."""
        if verification is None or self._asked.get(producer_id) is not verification:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, f"the transaction of producer {producer_id} ended before the batch came"
            )
        if sequence > verification.lowest_sequence or (verification.begins_anew and sequence and not knows_producer):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {sequence} before an earlier one was written; "
                f"sequence {verification.lowest_sequence} was seen",
            )

    def end(self, producer_id: int) -> None:
        """The transaction has begun here, or it has ended, or the coordinator does not know it."""
        self._asked.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget what nobody came back for."""
        asked = self._asked
        for producer_id in [key for key, value in asked.items() if now_ms - value.started_ms >= expiration_ms]:
            del asked[producer_id]
