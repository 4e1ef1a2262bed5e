"""ListTransactions: the transactional ids that a broker is the coordinator of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Int16, Int32, Int64, Message, String, since


class ListTransactionsRequest(Message, api_key=66, versions=(0, 2), flexible_since=0):
    """Asks for some states, producers, durations in milliseconds, ids; an empty list, -1 and null mean all."""

    state_filters: Sequence[String] = []
    producer_id_filters: Sequence[Int64] = []
    duration_filter: Annotated[Int64, since(1)] = -1
    transactional_id_pattern: Annotated[String | None, since(2)] = None


class TransactionState(Message):
    """One transactional id."""

    transactional_id: String
    producer_id: Int64
    transaction_state: String


class ListTransactionsResponse(Message, api_key=66, versions=(0, 2), flexible_since=0):
    """The ids, and those of the states asked for that there are not."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: Sequence[String] = []
    transaction_states: Sequence[TransactionState] = []
