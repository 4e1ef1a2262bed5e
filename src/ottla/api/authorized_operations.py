"""What a client may do with a resource, as a bit per operation, for those who ask.

There are no ACLs yet and so nobody who could forbid anything: everything that the kind of resource knows, as Kafka
answers without an authorizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.api.entry import Operation
from ottla.model.ids import AUTHORIZED_OPERATIONS_OMITTED


def _bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


ON_TOPIC: Final = _bits(
    (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    )
)
ON_CLUSTER: Final = _bits(
    (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    )
)
ON_GROUP: Final = _bits(
    (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    )
)


def cluster_operations(*, asked: bool) -> int:
    """For an answer that has a place for them whether they were asked for or not."""
    return ON_CLUSTER if asked else AUTHORIZED_OPERATIONS_OMITTED
