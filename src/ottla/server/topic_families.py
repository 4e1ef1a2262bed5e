"""Metrics of what went through each topic, and of all topics together, those that are gone among them."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.server.metric_text import Family, escaped, joined

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.runtime.topic_counters import TopicCounters


def _counter(name: str, help_text: str) -> Family:
    return Family(f"kafka_server_brokertopicmetrics_{name}_total", "counter", help_text)


PER_TOPIC: Final = (
    (_counter("messagesin", "Records that were produced."), "messages_in"),
    (_counter("bytesin", "Bytes of the batches that were produced."), "bytes_in"),
    (_counter("bytesout", "Bytes of the batches that consumers fetched."), "bytes_out"),
    (_counter("totalproducerequests", "Partitions that produce requests wrote to."), "produce_requests"),
    (_counter("totalfetchrequests", "Partitions that fetch requests read from."), "fetch_requests"),
)
"""Each with the counter of a topic that it shows; a sample without a label is of all topics, as Kafka has it."""
FAILED_PRODUCE: Final = _counter("failedproducerequests", "Partitions of produce requests that were refused.")
BYTES_REJECTED: Final = _counter("bytesrejected", "Bytes of the batches that were refused.")


class TopicTraffic:
    """Remembers the counters of topics from one page to the next, so that no sum goes down when a topic is deleted."""

    __slots__ = ("_gone", "_known")

    def __init__(self) -> None:
        self._known: dict[UUID, tuple[str, TopicCounters]] = {}
        self._gone = {field: 0 for _, field in PER_TOPIC}

    def families(self, services: Services) -> Iterator[str]:
        """Pieces of the page."""
        self._look(services)
        yield ""
        for family, field in PER_TOPIC:
            yield family.header()
            yield from joined(self._lines(family.name, field))
        yield FAILED_PRODUCE.alone(services.metrics.produce_errors)
        yield BYTES_REJECTED.alone(services.metrics.bytes_rejected)

    def _look(self, services: Services) -> None:
        """Take in new topics, and keep the counts of those that went. Whole, since pages may be made side by side."""
        found = {topic.id: (topic.name, topic.counters) for topic in services.partitions.topics}
        gone = [self._known[topic_id][1] for topic_id in self._known.keys() - found.keys()]
        for field in self._gone:
            self._gone[field] += sum(map(attrgetter(field), gone))
        self._known = found

    def _lines(self, name: str, field: str) -> Iterator[str]:
        value_of, total = attrgetter(field), self._gone[field]
        for topic, counters in list(self._known.values()):
            value = value_of(counters)
            total += value
            yield f'{name}{{topic="{escaped(topic)}"}} {value}\n'
        yield f"{name} {total}\n"
