"""The progress of a query as a group; `tests/spark` sees it with a real one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.client.cluster import Cluster
from ottla.client.groups import GroupAdmin
from ottla.model.ids import TopicPartition
from pyspark_ottla.offsets import OffsetRange
from pyspark_ottla.options import stream_options
from pyspark_ottla.progress import group_of_query, show_progress
from pyspark_ottla.reader import RangePartition
from tests.unit.pyspark_ottla.tables import table_of


@pytest.mark.parametrize("commits", [True, False])
def test_the_end_of_a_range_is_committed_when_it_was_read(
    bootstrap: str, cluster: Cluster, new_topic: Callable[..., str], commits: bool
) -> None:
    topic = new_topic(1)
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.group.id": f"g-{topic}"}
    options = stream_options({**given, "commitOffsets": str(commits)})
    part = RangePartition(OffsetRange(TopicPartition(topic, 0), 3, 9))
    tables = show_progress(iter([table_of(["a"])]), part, options)
    next(tables)
    assert not GroupAdmin(cluster).fetch_offsets(f"g-{topic}")
    assert list(tables) == []
    found = GroupAdmin(cluster).fetch_offsets(f"g-{topic}")
    assert [committed.offset for committed in found.values()] == ([9] if commits else [])


def test_a_task_outside_of_a_query_has_no_group() -> None:
    options = stream_options({"kafka.bootstrap.servers": "h", "subscribe": "t"})
    assert group_of_query(options) is None
