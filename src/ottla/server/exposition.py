"""The metrics page: the state of a broker in Prometheus' text format.

Theory of operation. The page is made on the loop, because the state belongs to the loop, and in small pieces, because
ten thousand partitions have a hundred thousand lines: `Exposition.render` is an iterator, and whoever takes the pieces
lets the loop turn in between. A thread would be no better: it would keep the interpreter for milliseconds at a time,
once for each system call of the loop.

Names are those that dashboards know. `kafka_brokers`, `kafka_broker_info`, `kafka_topic_*` and `kafka_consumergroup_*`
are those of danielqsj/kafka_exporter; the other `kafka_*` are what Strimzi's rules for the JMX exporter make of Kafka's
MBeans; `process_*` are Prometheus' own; `ottla_*` is what only Ottla has.

What an editor must keep true:
- Between two pieces anything may change: topics come and go, logs open and close. A piece looks up what it needs.
- A scrape opens no log. Offsets and sizes of a log that nobody has touched since the start are left out.
- A sum over all brokers counts a partition once: its leader reports it. What is the cluster's, how many brokers and how
  many partitions of a topic, the active controller reports.
- A counter never goes down, so what a deleted topic counted stays in the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ottla import __version__
from ottla.server import broker_families as broker
from ottla.server.coordinator_families import coordinator_families
from ottla.server.group_families import group_families
from ottla.server.metric_text import Family
from ottla.server.partition_families import ClusterCounts, partition_families
from ottla.server.topic_families import TopicTraffic

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.api.entry import Api
    from ottla.server.listener import BoundListener
    from ottla.server.loop_watch import LoopWatch
    from ottla.server.process_values import Values

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BUILD_INFO: Final = Family("ottla_build_info", "gauge", "The version that runs, and its cluster; the value is 1.")


class Exposition:
    """Makes the pages of one broker. `listeners` may be a list that grows later."""

    __slots__ = ("_api_names", "_is_ready", "_listeners", "_services", "_traffic", "_watch")

    def __init__(
        self,
        services: Services,
        watch: LoopWatch,
        is_ready: Callable[[], bool],
        *,
        apis: Iterable[Api],
        listeners: Sequence[BoundListener],
    ) -> None:
        self._services = services
        self._watch = watch
        self._is_ready = is_ready
        self._api_names = {api.key: api.name for api in apis}
        self._listeners = listeners
        self._traffic = TopicTraffic()

    def render(self, process: Values) -> Iterator[str]:
        """The page in pieces. Each takes well under a millisecond; an empty one only lets the loop turn."""
        services = self._services
        is_controller = services.quorum.describe().leader_id == services.node_id
        yield self._build_info()
        yield broker.state_family(is_ready=self._is_ready())
        for family, value in process:
            yield family.alone(value)
        yield from broker.connection_families(services, self._listeners, self._watch)
        yield from broker.request_families(services, self._api_names)
        yield from broker.fetch_session_families(services)
        yield from broker.telemetry_families(services)
        yield from broker.raft_families(services)
        yield from coordinator_families(services)
        yield from group_families(services)
        counts = ClusterCounts()
        yield from counts.count(services)
        yield from broker.cluster_families(services, counts, is_controller=is_controller)
        yield from broker.replica_families(counts)
        yield from broker.directory_families(services)
        yield from self._traffic.families(services)
        yield from partition_families(services, is_controller=is_controller)

    def _build_info(self) -> str:
        services = self._services
        labels = (("version", __version__), ("cluster_id", services.cluster_id), ("node_id", str(services.node_id)))
        return BUILD_INFO.samples([(labels, 1)])
