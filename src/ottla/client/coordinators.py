"""Which broker coordinates a group or a transactional id, and calls that find it again when it has moved.

Theory of operation. A coordinator is the leader of one partition of an internal topic, so it moves as leaders do, and
for a moment nobody is it: the topic is being made, or the new leader is still reading it. The brokers then answer
COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR; `call` forgets what it knew, waits and asks
again, for as long as one call may take but never longer than `COORDINATOR_WAIT_MS_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.deadline import Deadline
from ottla.client.errors import BrokerError, ClientError, broker_error
from ottla.model.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

T = TypeVar("T")

COORDINATOR_WAIT_MS_MAX: Final = 30_000
REMEMBERED_MAX: Final = 1_000
_SEVERAL_KEYS_SINCE: Final = 4


class CoordinatorKind(IntEnum):
    """What is coordinated."""

    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """The coordinators of one kind. The cluster remembers them for everybody until they turn out to be others."""

    def __init__(self, cluster: Cluster, kind: CoordinatorKind) -> None:
        self._cluster = cluster
        self._kind = kind

    def node_id(self, key: str) -> int:
        """The broker that coordinates the key. Asks once; a retriable BrokerError while there is none."""
        remembered = self._cluster.coordinators
        known = remembered.get((self._kind, key))
        if known is None:
            known = self._ask(key)
            if len(remembered) >= REMEMBERED_MAX:
                remembered.clear()
            remembered[self._kind, key] = known
        return known

    def forget(self, key: str) -> None:
        """Somebody found that another broker coordinates the key."""
        self._cluster.coordinators.pop((self._kind, key), None)

    def call(self, key: str, attempt: Callable[[Connection], T], *, repeatable: bool = True) -> T:
        """Run `attempt` with a connection to the key's coordinator until it succeeds or fails for good."""

        def once() -> T:
            try:
                return attempt(self._cluster.connection(self.node_id(key)))
            except ClientError as error:
                if not isinstance(error, BrokerError) or error.retriable:
                    self.forget(key)
                raise

        wait_ms = min(self._cluster.settings.api_timeout_ms, COORDINATOR_WAIT_MS_MAX)
        return self._cluster.retry(once, repeatable=repeatable, deadline=Deadline(wait_ms))

    def _ask(self, key: str) -> int:
        connection = self._cluster.any_connection()
        version = connection.version_of(FindCoordinatorRequest)
        several = version >= _SEVERAL_KEYS_SINCE
        request = FindCoordinatorRequest(
            key="" if several else key, key_type=self._kind, coordinator_keys=[key] if several else []
        )
        answer = connection.receive(connection.send(request, FindCoordinatorResponse, version=version))
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code != ErrorCode.NONE:
            subject = f"cannot find the coordinator of {self._kind.name.lower()} {key!r}"
            raise broker_error(found.error_code, subject, found.error_message)
        return found.node_id
