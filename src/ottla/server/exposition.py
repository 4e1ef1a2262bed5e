"""The metrics page: the state of a broker in Prometheus' text format.

Theory of operation. The page is made on the loop, because the state belongs to the loop, and in small pieces, because ten
thousand partitions have a hundred thousand lines: `Exposition.render` is an iterator, and whoever takes the pieces lets the
loop turn in between. A thread would be no better. It would hold the interpreter for milliseconds at a time, once for each
system call of the loop.

Names are those that dashboards know: `kafka_topic_*` and `kafka_broker*` are danielqsj/kafka_exporter's, the other
`kafka_*` are what Strimzi's rules for the JMX exporter make of Kafka's MBeans, `process_*` are Prometheus' own, and
`ottla_*` is what only Ottla has.

What an editor must keep true:
- Between two pieces anything may change: topics come and go, logs open and close. What a piece needs is looked up in it.
- A scrape opens no log. Offsets and sizes of a log that nobody has touched since the start are left out.
- A sum over all brokers counts a partition once: it is reported by its leader, and what is the cluster's (how many brokers,
  how many partitions a topic has) by the active controller.
- A counter never goes down, so what a deleted topic counted stays in the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.server.broker_families import broker_families
from ottla.server.metric_text import Family
from ottla.server.partition_families import ClusterCounts, partition_families
from ottla.server.topic_families import TopicTraffic

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.server.listener import Listener
    from ottla.server.loop_watch import LoopWatch

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

BUILD_INFO = Family("ottla_build_info", "gauge", "The version that runs; the value is always 1.")
