"""What a change of configs does to partitions, in the same batch of records as the change itself.

With fewer replicas needed in sync a leader may move its high watermark without those in the ELR, so they must not be
eligible from the same moment on. And a partition without a leader may get one by an unclean election.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ottla.core.controller.builder import apply
from ottla.core.controller.context import Context, with_dynamic_configs
from ottla.core.controller.elections import Electorate
from ottla.core.controller.records import NO_LEADER, PartitionChangeRecord, Record

_KEYS: Final = frozenset(("min.insync.replicas", "unclean.leader.election.enable"))


def partition_changes(context: Context, records: Sequence[Record]) -> Iterator[PartitionChangeRecord]:
    """The records that must follow these records of configs."""
    if not any(getattr(record, "name", None) in _KEYS for record in records):
        return
    image, _ = apply(context.image, records, offset=context.next_offset + len(records) - 1, epoch=context.image.epoch)
    electorate = Electorate(replace(context, image=image, config=with_dynamic_configs(context.config, image)))
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if partition.elr or partition.leader == NO_LEADER:
                record = electorate.change(topic, index)
                if record is not None:
                    yield record
