"""How far streaming queries are: lag, rows per second and the time of a batch, after every batch.

    session.streams.addListener(LagListener())

Works for every source whose offsets are Kafka's. Spark reports nothing while a query has nothing to do; what others
write meanwhile shows in the group of the query (`ottla group describe`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

Offsets = Mapping[str, Mapping[str, int]]


class QueryReport(NamedTuple):
    """One batch of a query."""

    query: str
    batch_id: int
    rows: int
    rows_per_second: float
    batch_ms: int
    lag: int
    """Records that were in the topics and had not been read."""

    def __str__(self) -> str:
        return (
            f"{self.query}: batch {self.batch_id}, {self.rows} rows in {self.batch_ms} ms "
            f"({self.rows_per_second:.0f}/s), lag {self.lag}"
        )


class LagListener(StreamingQueryListener):
    """Hands a report of every batch to `tell` (print, if nothing is given) and keeps the last one of each query."""

    def __init__(self, tell: Callable[[QueryReport], object] = print) -> None:
        self._tell = tell
        self.reports: dict[str, QueryReport] = {}

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        report = report_of(event.progress)
        self.reports[report.query] = report
        self._tell(report)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass

    def metrics(self) -> str:
        """The last reports in the form that Prometheus reads."""
        lines = []
        for name, field in (
            ("lag_records", "lag"),
            ("batch_milliseconds", "batch_ms"),
            ("rows_per_second", "rows_per_second"),
        ):
            lines.append(f"# TYPE ottla_spark_query_{name} gauge")
            for query, report in self.reports.items():
                shown = query.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
                lines.append(f'ottla_spark_query_{name}{{query="{shown}"}} {getattr(report, field)}')
        return "\n".join(lines) + "\n"


def report_of(progress: Any) -> QueryReport:
    """What Spark's account of a batch says."""
    return QueryReport(
        query=progress.name or str(progress.id),
        batch_id=progress.batchId,
        rows=progress.numInputRows,
        rows_per_second=progress.processedRowsPerSecond or 0.0,
        batch_ms=int((progress.durationMs or {}).get("triggerExecution", 0)),
        lag=sum(lag_of(source.latestOffset, source.endOffset) for source in progress.sources),
    )


def lag_of(latest: str | None, end: str | None) -> int:
    """Records between where a batch ended and where the topics did; 0 for sources with other offsets."""
    head, reached = _offsets(latest), _offsets(end)
    return sum(
        max(offset - reached.get(topic, {}).get(partition, 0), 0)
        for topic, partitions in head.items()
        for partition, offset in partitions.items()
    )


def _offsets(text: str | None) -> Offsets:
    try:
        parsed = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(parsed, dict):
        return {}
    return {topic: partitions for topic, partitions in parsed.items() if isinstance(partitions, dict)}
