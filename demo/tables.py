"""What is printed in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from demo.auditor import Seen
from demo.generators import Truth
from demo.timeline import Timeline, percentile


@dataclass
class Measured:
    """What the conductor measured beside the timeline."""

    brokers_ready_seconds: float = 0.0
    failover_seconds: float = 0.0
    down_seconds: float = 0.0
    in_sync_seconds: float = 0.0
    restarts: int = 0


def streams_table(truths: Mapping[str, Truth], seen: Mapping[str, Seen]) -> Table:
    """Nothing lost, nothing twice: the sums of the verdict."""
    table = Table(title="What was written and what came out")
    table.add_column("topic")
    for name in ("written", "results", "lost", "twice", "sum in", "sum out"):
        table.add_column(name, justify="right")
    for name, truth in truths.items():
        of_it = seen.get(name, Seen())
        times = of_it.times
        table.add_row(
            name,
            f"{truth.made:,}",
            f"{of_it.counts.total():,}",
            f"{truth.made - sum(1 for count in times[: truth.made] if count):,}",
            f"{sum(1 for count in times if count > 1):,}",
            f"{truth.amounts.total():,}",
            f"{of_it.amounts.total():,}",
        )
    return table


def measures_table(timeline: Timeline, measured: Measured) -> Table:
    """Throughput, lag, latency, failover."""
    table = Table(title="What was measured", show_header=False)
    written, results = timeline.written.total(), timeline.results.total()
    write_rate = _mean(timeline, timeline.written, "written")
    result_rate = _mean(timeline, timeline.results, "drained")
    lag_max = max((lag for _, lag in timeline.lags()), default=0)
    write_ms = [value for values in timeline.write_ms.values() for value in values]
    latencies_ms = [value for values in _steady(timeline) for value in values]
    for name, figure in (
        ("three brokers ready after", f"{measured.brokers_ready_seconds:.2f} s"),
        ("events written, each to three brokers", f"{written:,}, at {write_rate:,.0f}/s"),
        ("write to acknowledgement, 50 and 99 %", _pair(write_ms, "ms", 1.0)),
        ("results, committed and read", f"{results:,}, at {result_rate:,.0f}/s"),
        ("best second of results", f"{max(timeline.results.values(), default=0):,}/s"),
        ("event to committed result, 50 and 99 %", _pair(latencies_ms, "s", 1000.0)),
        ("batches of the Spark job", _batches(timeline)),
        ("lag in events, worst and last", f"{lag_max:,}, {timeline.lag:,}"),
        ("failover: longest wait for a write", f"{measured.failover_seconds:.2f} s"),
        ("longest pause of the results", f"{timeline.result_pause_seconds:.2f} s"),
        ("dead broker away for", f"{measured.down_seconds:.1f} s"),
        ("in sync again after its start", f"{measured.in_sync_seconds:.2f} s"),
        ("Spark query started again", f"{measured.restarts} times"),
    ):
        table.add_row(name, figure)
    return table


def _steady(timeline: Timeline) -> list[list[float]]:
    """Latencies from when all events flowed: the job's first batches are left out."""
    since = timeline.marks.get("flow", 0.0)
    return [values for second, values in timeline.latencies_ms.items() if second >= since]


def _mean(timeline: Timeline, counts: Mapping[int, int], end: str) -> float:
    """Events per second from when all events flowed until that mark."""
    first, last = int(timeline.marks.get("flow", 0.0)), int(timeline.marks.get(end, timeline.now))
    return sum(count for second, count in counts.items() if first <= second <= last) / max(1, last - first)


def _pair(values: list[float], unit: str, divisor: float) -> str:
    return f"{percentile(values, 0.5) / divisor:,.1f} {unit}, {percentile(values, 0.99) / divisor:,.1f} {unit}"


def _batches(timeline: Timeline) -> str:
    rows = [float(rows) for rows, _ in timeline.batches]
    times = [float(batch_ms) for _, batch_ms in timeline.batches]
    return f"{len(rows)}, median {percentile(rows, 0.5):,.0f} rows in {percentile(times, 0.5):,.0f} ms"
