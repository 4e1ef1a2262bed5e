"""Up to where a partition can be read, for pages that must not open its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.runtime.partition import Partition


def readable_end(services: Services, partition: Partition) -> int | None:
    """None where it is not known without opening the log."""
    if partition.log_or_none is not None:
        return partition.high_watermark
    return services.log_directories.end_at_rest(partition)
