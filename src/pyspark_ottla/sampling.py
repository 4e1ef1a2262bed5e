"""How large records are, judged by a look at a few of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.client.cluster import Cluster
from ottla.client.fetching import FetchSettings
from ottla.client.partition_reader import PartitionReader
from ottla.model.ids import TopicPartition
from pyspark_ottla.options import SourceOptions

SAMPLE_BYTES: Final = 64 * 1024


def bytes_per_offset(
    cluster: Cluster,
    begin: Mapping[TopicPartition, int],
    head: Mapping[TopicPartition, int],
    options: SourceOptions,
) -> float:
    """Bytes on the wire per offset at the start of the partition that has most to read; 0 if nothing could be seen."""
    sizes = {partition: offset - begin.get(partition, offset) for partition, offset in head.items()}
    largest = max(sizes, key=lambda partition: sizes[partition], default=None)
    if largest is None or sizes[largest] <= 0:
        return 0.0
    settings = FetchSettings(partition_bytes_max=SAMPLE_BYTES, isolation=options.isolation)
    start = begin[largest]
    for fetched in PartitionReader(cluster, largest, start=start, end=start + 1, settings=settings):
        return len(fetched.records) / max(fetched.next_offset - start, 1)
    return 0.0
