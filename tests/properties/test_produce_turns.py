"""However requests come together in turns, each gets the answer, and the log holds what it would, if served alone."""

from __future__ import annotations

import errno
from typing import NamedTuple, cast

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.api.produce_services import Broker, Producer
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, ProducerFields, batch_of, read_all
from tests.unit.runtime.hosted import Hosted, run

PRODUCERS = 4
PARTITIONS = 3


class Step(NamedTuple):
    """One request; `ends` says whether the turn ends after it."""

    producer: int
    partition: int
    records: int
    sequence: int | None
    """None of a producer without an id; else how far it is from the one that would be next."""
    later_ms: int
    acks: int
    is_damaged: bool
    ends: bool
    is_disk_full: bool
    """From the end of this turn to the end of the next."""


steps = st.builds(
    Step,
    producer=st.integers(0, PRODUCERS - 1),
    partition=st.sampled_from([0, 0, 0, 1, 2]),
    records=st.integers(1, 3),
    sequence=st.none() | st.sampled_from([0, 0, 0, 0, 0, 0, -1, 1]),
    later_ms=st.sampled_from([0, 0, 0, 1, 5000]),
    acks=st.sampled_from([1, 1, -1]),
    is_damaged=st.sampled_from([False] * 9 + [True]),
    ends=st.booleans(),
    is_disk_full=st.sampled_from([False] * 9 + [True]),
)


class Side:
    """One of two brokers that are asked the same; only one of them has turns."""

    def __init__(self, *, has_turns: bool) -> None:
        self.broker = Broker(Hosted())
        self.has_turns = has_turns
        self.is_full = False
        self.producers = [self.broker.producer(f"shop-{number}") for number in range(PRODUCERS)]
        self.next_sequence = [[0] * PARTITIONS for _ in range(PRODUCERS)]
        for producer in self.producers:
            for index in range(PARTITIONS):
                for acks in (1, -1):
                    self._send(producer, batch_of(), index, acks)
                    self.broker.turn.end()

    def _send(self, producer: Producer, batch: bytearray, index: int, acks: int) -> bool:
        producer.produce_skipped = 0
        if not self.has_turns:
            producer.produce_shape, producer.produce_skipped = None, 1  # It is not looked into, so nothing is known.
        return producer.ask(batch, index=index, acks=acks)

    def ask(self, step: Step) -> None:
        batch = batch_of(step.records, timestamp=NOW_MS + step.later_ms, producer=self._fields(step))
        if step.is_damaged:
            batch[-1] ^= 1
        taken = self._send(self.producers[step.producer], batch, step.partition, step.acks)
        if step.is_damaged or not self.has_turns:
            assert not taken
        elif step.sequence is None and not self.is_full:
            assert taken  # What is refused may not be: who is alone learns of it at once.
        if step.ends:
            self.broker.turn.end()
            self.fill_disk(is_full=step.is_disk_full)

    def fill_disk(self, *, is_full: bool) -> None:
        self.is_full = is_full
        error = OSError(errno.ENOSPC, "No space left on device") if is_full else None
        cast(CrashDisk, self.broker.services.world.disk).fail_writes = lambda size: error

    def _fields(self, step: Step) -> ProducerFields:
        if step.sequence is None:
            return ProducerFields()
        expected = self.next_sequence[step.producer]
        sequence = max(0, expected[step.partition] + step.sequence * step.records)
        if step.sequence == 0 and not step.is_damaged:
            expected[step.partition] += step.records
        return ProducerFields(step.producer, 0, sequence)

    def logs(self) -> list[list[bytes]]:
        return [read_all(self.broker.hosted.partition(index).log) for index in range(PARTITIONS)]


@given(st.lists(steps, max_size=60))
def test_turns_change_nothing_but_the_cost(script: list[Step]) -> None:
    async def scenario() -> None:
        together, alone = Side(has_turns=True), Side(has_turns=False)
        for step in script:
            together.ask(step)
            alone.ask(step)
        together.broker.turn.end()
        for one, other in zip(together.producers, alone.producers, strict=True):
            assert await one.rows() == await other.rows()
        assert together.logs() == alone.logs()

    run(scenario)
