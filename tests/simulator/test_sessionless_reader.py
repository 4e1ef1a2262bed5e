"""Readers without sessions: brokers really have a short way for them, and what they read is judged like all else."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ottla.log.reading import ReadableLog
from ottla.log.reading_place import ReadingPlace
from ottla.model.chunks import FileSlice
from ottla.runtime.repeated_fetches import RepeatedFetch
from simulator.cluster_run import ClusterRun, RunResult
from simulator.faults import plan
from simulator.options import Options, draw

BUSY = Options(
    nodes=3,
    replicas=3,
    seconds=40,
    readers=2,
    sessionless_readers=2,
    seconds_between_sends=0.1,
    group_members=0,
    compacts=True,
)


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what was answered as a repeated fetch, and what was read at a place that was known."""
    counts: Counter[str] = Counter()
    answer, read_on, read_at_new_place = (
        RepeatedFetch.answer,
        ReadableLog.read_on,
        ReadableLog._read_at_new_place,
    )

    def counted_answer(self: RepeatedFetch, *args: Any) -> Any:
        found = answer(self, *args)
        counts["repeated fetches"] += found is not None
        return found

    def counted_read(self: ReadableLog, *args: Any) -> Any:
        counts["known places"] += 1
        return read_on(self, *args)

    def counted_new_place(self: ReadableLog, *args: Any) -> Any:
        counts["known places"] -= 1
        return read_at_new_place(self, *args)

    monkeypatch.setattr(RepeatedFetch, "answer", counted_answer)
    monkeypatch.setattr(ReadableLog, "read_on", counted_read)
    monkeypatch.setattr(ReadableLog, "_read_at_new_place", counted_new_place)
    return counts


def run() -> RunResult:
    return ClusterRun(1, BUSY, plan(1, BUSY)).run()


def test_a_busy_run_meets_repeated_fetches_and_reading_places(met: Counter[str]) -> None:
    result = run()
    assert result.findings == []
    assert result.counts["done: reader went back"] > 10
    assert met["repeated fetches"] > 100
    assert met["known places"] > 20


def test_a_place_that_is_a_batch_too_far_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    show = ReadingPlace.show

    def show_the_next(self: ReadingPlace, records: FileSlice, data: memoryview) -> None:
        before = self.position
        show(self, records, data)
        segment = self.segment
        if self.position != before and segment is not None and self.position + 2 * self.size < segment.size:
            self.position += self.size

    monkeypatch.setattr(ReadingPlace, "show", show_the_next)
    assert "poll skip" in {finding.rule for finding in run().findings}


def test_some_seeds_have_such_readers_and_none_has_more_than_it_has_readers() -> None:
    drawn = [draw(seed) for seed in range(30)]
    assert {options.sessionless_readers for options in drawn} == {0, 1, 2, 3}
    assert all(options.sessionless_readers <= options.readers for options in drawn)
