"""ListTransactions 0-2: the transactional ids that this broker coordinates.

Filtered by state and producer id, from version 1 on by how long ago the transaction began, from version 2 on by a
pattern (RE2's) that the whole id has to match. States that do not exist are named in the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.core.groups.regex import compile_pattern
from ottla.core.transactions.commands import ListTransactions
from ottla.core.transactions.transaction import STATE_NAMES
from ottla.model.errors import ErrorCode
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

_STATES_BY_NAME: Final = {name: state for state, name in STATE_NAMES.items()}


async def handle(ctx: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    states = request.state_filters
    command = ListTransactions(
        states=frozenset(_STATES_BY_NAME[name] for name in states if name in _STATES_BY_NAME) if states else None,
        producer_ids=frozenset(request.producer_id_filters),
        duration_ms=request.duration_filter,
        matches=_matcher(request.transactional_id_pattern),
    )
    listed = await ctx.services.transactions.coordinators.broadcast(lambda: command)
    return ListTransactionsResponse(
        unknown_state_filters=list(dict.fromkeys(name for name in states if name not in _STATES_BY_NAME)),
        transaction_states=[
            TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=STATE_NAMES[transaction.state],
            )
            for of_shard in listed
            for transaction in of_shard
        ],
    )


def failed(
    _request: ListTransactionsRequest, code: ErrorCode, _message: str, _version: int
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code)


def _matcher(pattern: str | None) -> Callable[[str], bool] | None:
    if not pattern:
        return None
    full_match = compile_pattern(pattern).fullmatch
    return lambda transactional_id: bool(full_match(transactional_id))
