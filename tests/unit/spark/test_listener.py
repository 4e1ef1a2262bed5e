"""Lag and rates from Spark's own account of a batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.spark.listener import LagListener, lag_of, report_of


def progress(latest: str | None = '{"t":{"0":9}}', end: str | None = '{"t":{"0":4}}', **changes: Any) -> Any:
    source = SimpleNamespace(latestOffset=latest, endOffset=end)
    given = {
        "name": "orders",
        "id": "some-id",
        "batchId": 3,
        "numInputRows": 7,
        "processedRowsPerSecond": 12.5,
        "durationMs": {"triggerExecution": 560},
        "sources": [source],
    }
    return SimpleNamespace(**{**given, **changes})


@pytest.mark.parametrize(
    ("latest", "end", "lag"),
    [
        ('{"a":{"0":10,"1":5},"b":{"0":1}}', '{"a":{"0":7,"1":5}}', 4),
        ('{"a":{"0":3}}', '{"a":{"0":7}}', 0),
        (None, '{"a":{"0":7}}', 0),
        ("12", "9", 0),
        ("no json", None, 0),
    ],
)
def test_lag(latest: str | None, end: str | None, lag: int) -> None:
    assert lag_of(latest, end) == lag


def test_a_report() -> None:
    told: list[Any] = []
    listener = LagListener(told.append)
    listener.onQueryProgress(SimpleNamespace(progress=progress()))
    assert str(told[0]) == "orders: batch 3, 7 rows in 560 ms (12/s), lag 5"
    assert 'ottla_spark_query_lag_records{query="orders"} 5' in listener.metrics()
    assert 'ottla_spark_query_batch_milliseconds{query="orders"} 560' in listener.metrics()
    for event in (listener.onQueryStarted, listener.onQueryIdle, listener.onQueryTerminated):
        event(None)


def test_a_query_without_a_name_or_rates() -> None:
    report = report_of(progress(name=None, processedRowsPerSecond=None, durationMs=None, sources=[]))
    assert (report.query, report.rows_per_second, report.batch_ms, report.lag) == ("some-id", 0.0, 0, 0)
