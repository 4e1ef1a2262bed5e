"""What a reader of committed transactions gets, when, and what it is told to leave out."""

from __future__ import annotations

import asyncio

from ottla.model.chunks import FileSlice
from ottla.model.errors import ErrorCode
from ottla.runtime.fetch_sessions import FetchSession
from ottla.runtime.fetching import READ_COMMITTED, Fetches, FetchLimits
from ottla.wire.batch import iterate, read_header
from ottla.wire.fetch_types import EpochEndOffset, FetchPartition, FetchRequest, PartitionData
from ottla.wire.fields import TopicKey
from tests.unit.log.support import batch_of
from tests.unit.runtime.hosted import TOPIC, Hosted, run

READ_UNCOMMITTED = 0


def request(offset: int, isolation: int, *, min_bytes: int = 0, wait_ms: int = 0) -> FetchRequest:
    wanted = FetchPartition(0, -1, offset, -1, -1, 1 << 20)
    return FetchRequest(-1, wait_ms, min_bytes, 1 << 20, isolation, 0, -1, [(TOPIC, [wanted])], [], "", None, -1, {})


def fetch_at_once(hosted: Hosted, fetches: Fetches, offset: int, isolation: int) -> PartitionData | None:
    topics = fetches.fetch_at_once(request(offset, isolation), 1 << 20)
    return None if topics is None else topics[0][1][0]


def limits(isolation: int, *, wait_ms: int = 0, bytes_min: int = 1, only_changes: bool = False) -> FetchLimits:
    return FetchLimits(wait_ms, bytes_min, 1 << 20, isolation, only_changes)


class Reading:
    """A session of a reader of one partition."""

    def __init__(self, fetches: Fetches, session_id: int = 0) -> None:
        self.fetches = fetches
        self.session = FetchSession(session_id)
        self.answers: list[list[PartitionData]] = []

    def fetch(self, offset: int, wanted: FetchLimits) -> None:
        self.session.update(TOPIC, [(0, -1, offset, -1, -1, 1 << 20)])
        self.resume(wanted)

    def resume(self, wanted: FetchLimits) -> None:
        self.fetches.fetch(
            self.session, wanted, lambda topics: self.answers.append([data for _, rows in topics for data in rows])
        )

    def one(self) -> PartitionData:
        (rows,) = self.answers
        (data,) = rows
        return data


def bases(data: PartitionData | None) -> list[int]:
    if data is None or data.records is None:
        return []
    assert isinstance(data.records, FileSlice)
    read = data.records.file.pread(data.records.length, data.records.position)
    return [header.base_offset for _, header in iterate(read)]


def plain(hosted: Hosted) -> None:
    batch = batch_of(1)
    hosted.partition().append(memoryview(batch), read_header(batch), hosted.clock.ms)


def test_nothing_of_an_open_transaction_is_read_and_nothing_after_it() -> None:
    async def scenario() -> None:
        hosted = Hosted()
        fetches = hosted.fetches()
        plain(hosted)
        hosted.write(7, 0)
        plain(hosted)
        at_once = fetch_at_once(hosted, fetches, 0, READ_COMMITTED)
        assert at_once is not None
        assert (bases(at_once), at_once.high_watermark, at_once.last_stable_offset) == ([0], 3, 1)
        reading = Reading(fetches)
        reading.fetch(0, limits(READ_COMMITTED))
        assert bases(reading.one()) == [0]
        assert reading.one()._replace(records=None, aborted=()) == at_once._replace(records=None)
        uncommitted = fetch_at_once(hosted, fetches, 0, READ_UNCOMMITTED)
        assert uncommitted is not None
        assert (bases(uncommitted), uncommitted.last_stable_offset, uncommitted.aborted) == ([0, 1, 2], 1, None)

    run(scenario)


def test_the_answer_names_what_was_aborted() -> None:
    async def scenario() -> None:
        hosted = Hosted()
        fetches = hosted.fetches()
        hosted.write(7, 0)
        hosted.write(8, 0)
        hosted.end(7, committed=False)
        hosted.end(8, committed=True)
        for offset, aborted in ((0, [(7, 0)]), (1, [(7, 0)]), (3, [])):
            data = fetch_at_once(hosted, fetches, offset, READ_COMMITTED)
            assert data is not None
            assert list(data.aborted or ()) == aborted
            assert data.aborted is not None
            assert data.last_stable_offset == 4
            reading = Reading(fetches)
            reading.fetch(offset, limits(READ_COMMITTED))
            assert list(reading.one().aborted or ()) == aborted
        uncommitted = fetch_at_once(hosted, fetches, 0, READ_UNCOMMITTED)
        assert uncommitted is not None
        assert uncommitted.aborted is None

    run(scenario)


def test_a_wait_ends_with_the_marker_and_not_with_what_comes_before_it() -> None:
    async def scenario() -> None:
        hosted = Hosted()
        reading = Reading(hosted.fetches(), session_id=5)
        hosted.write(7, 0)
        reading.fetch(0, limits(READ_COMMITTED, wait_ms=60_000))
        for number in range(3):
            hosted.write(7, 1 + number)
            plain(hosted)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert reading.answers == []
        hosted.end(7, committed=True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        data = reading.one()
        assert (bases(data), data.last_stable_offset) == ([0, 1, 2, 3, 4, 5, 6, 7], 8)

    run(scenario)


def test_bytes_above_the_stable_offset_do_not_count() -> None:
    async def scenario() -> None:
        hosted = Hosted()
        fetches = hosted.fetches()
        plain(hosted)
        hosted.write(7, 0)
        enough_for_all = request(0, READ_COMMITTED, min_bytes=100, wait_ms=500)
        assert fetches.fetch_at_once(enough_for_all, 1 << 20) is None
        assert fetches.fetch_at_once(enough_for_all._replace(isolation_level=READ_UNCOMMITTED), 1 << 20) is not None
        reading = Reading(fetches)
        reading.fetch(0, limits(READ_COMMITTED, wait_ms=60_000, bytes_min=100))
        assert reading.answers == []
        hosted.end(7, committed=True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert bases(reading.one()) == [0, 1, 2]

    run(scenario)


def test_a_session_is_told_when_the_stable_offset_moves() -> None:
    async def scenario() -> None:
        hosted = Hosted()
        reading = Reading(hosted.fetches(), session_id=5)
        hosted.write(7, 0)
        reading.fetch(0, limits(READ_COMMITTED))
        assert reading.answers.pop()[0].last_stable_offset == 0
        reading.resume(limits(READ_COMMITTED, only_changes=True))
        assert reading.answers.pop() == []
        hosted.end(7, committed=False)
        reading.resume(limits(READ_COMMITTED, only_changes=True))
        (data,) = reading.answers.pop()
        assert (data.last_stable_offset, list(data.aborted or ()), bases(data)) == (2, [(7, 0)], [0, 1])

    run(scenario)


def test_deleted_records_of_an_open_transaction_do_not_hold_the_stable_offset_below_the_start() -> None:
    async def scenario() -> None:
        hosted = Hosted()
        hosted.write(7, 0)
        plain(hosted)
        hosted.partition().log.delete_records_before(1)
        data = fetch_at_once(hosted, hosted.fetches(), 1, READ_COMMITTED)
        assert data is not None
        assert (data.log_start_offset, data.last_stable_offset, data.records) == (1, 1, None)

    run(scenario)


def test_a_reader_beyond_the_stable_offset_waits() -> None:
    async def scenario() -> None:
        hosted = Hosted()
        hosted.write(7, 0)
        plain(hosted)
        data = fetch_at_once(hosted, hosted.fetches(), 2, READ_COMMITTED)
        assert data is not None
        assert (data.error_code, data.records) == (0, None)

    run(scenario)


def test_a_partition_that_found_no_room_gets_its_turn() -> None:
    """Its data is not news to wait for: the next fetch of the session brings it, though the request is silent on it."""

    async def scenario() -> None:
        hosted = Hosted()
        reading = Reading(hosted.fetches(), session_id=5)
        for index in (0, 1):
            batch = batch_of(1)
            hosted.partition(index).append(memoryview(batch), read_header(batch), hosted.clock.ms)
            reading.session.update(TOPIC, [(index, -1, 0, -1, -1, 1 << 20)])
        small = limits(READ_UNCOMMITTED)._replace(bytes_max=1)
        reading.resume(small)
        assert [data.records is None for data in reading.answers.pop()] == [False, True]
        reading.fetch(1, small._replace(only_changes=True))
        (data,) = reading.answers.pop()
        assert (data.index, bases(data)) == (1, [0])

    run(scenario)


def written_to_all(partitions: int) -> Hosted:
    hosted = Hosted(partitions=partitions)
    for partition in hosted.table:
        batch = batch_of(1)
        partition.append(memoryview(batch), read_header(batch), hosted.clock.ms)
    return hosted


def with_records(rows: list[PartitionData]) -> list[int]:
    return [data.index for data in rows if data.records is not None]


def test_an_answer_holds_few_files_open_and_the_next_ones_bring_the_rest() -> None:
    async def scenario() -> None:
        hosted = written_to_all(10)
        reading = Reading(Fetches(hosted.table, asyncio.get_running_loop(), slices_max=4), session_id=5)
        reading.session.update(TOPIC, [(index, -1, 0, -1, -1, 1 << 20) for index in range(10)])
        read: list[int] = []
        wanted = limits(READ_UNCOMMITTED, wait_ms=60_000, bytes_min=1 << 20)  # Nobody waits for what does not fit.
        while len(read) < 8:
            reading.resume(wanted)
            found = with_records(reading.answers.pop())
            assert len(found) == 4
            read += found
            reading.session.update(TOPIC, [(index, -1, 1, -1, -1, 1 << 20) for index in found])
            wanted = wanted._replace(only_changes=True)
        reading.resume(wanted._replace(wait_ms_max=0))
        assert sorted(read + with_records(reading.answers.pop())) == list(range(10))

    run(scenario)


def test_partitions_that_are_always_full_do_not_starve_the_others() -> None:
    async def scenario() -> None:
        hosted = written_to_all(10)
        reading = Reading(Fetches(hosted.table, asyncio.get_running_loop(), slices_max=4), session_id=5)
        every = [(index, -1, 0, -1, -1, 1 << 20) for index in range(10)]
        reading.session.update(TOPIC, every)
        read: set[int] = set()
        for _ in range(4):
            reading.resume(limits(READ_UNCOMMITTED, only_changes=True))
            read.update(with_records(reading.answers.pop()))
        assert read == set(range(10))

    run(scenario)


def test_a_fetch_without_a_session_holds_few_files_open_too() -> None:
    async def scenario() -> None:
        hosted = written_to_all(10)
        fetches = Fetches(hosted.table, asyncio.get_running_loop(), slices_max=4)
        asked = [FetchPartition(index, -1, 0, -1, -1, 1 << 20) for index in range(10)]
        wanted = request(0, READ_UNCOMMITTED, min_bytes=1 << 20, wait_ms=1000)._replace(topics=[(TOPIC, asked)])
        ((_, rows),) = fetches.fetch_at_once(wanted, 1 << 20) or [("", [])]
        assert len(rows) == 10
        assert with_records(rows) == [0, 1, 2, 3]

    run(scenario)


def test_a_session_that_is_closed_answers_who_waits_on_it() -> None:
    async def scenario() -> None:
        hosted = Hosted()
        reading = Reading(hosted.fetches(), session_id=5)
        reading.fetch(0, limits(READ_UNCOMMITTED, wait_ms=1_000_000))
        assert reading.answers == []
        reading.session.close()
        assert bases(reading.one()) == []

    run(scenario)


def told(offset: int, last_fetched_epoch: int) -> tuple[int, EpochEndOffset | None]:
    """Error and divergence for a consumer that says from which epoch its last record is; the log is 2 to 4."""
    found: list[PartitionData] = []

    async def scenario() -> None:
        hosted = Hosted()
        hosted.write(7, 0, count=4)
        hosted.partition().log.delete_records_before(2)
        session = FetchSession()
        session.update(TOPIC, [(0, -1, offset, last_fetched_epoch, -1, 1 << 20)])
        hosted.fetches().fetch(session, limits(0), lambda topics: found.extend(topics[0][1]))

    run(scenario)
    return found[0].error_code, found[0].diverging_epoch


def test_a_consumer_that_knows_more_than_the_log_begins_anew_instead_of_cutting_to_nothing() -> None:
    assert told(3, 0) == (0, None)
    assert told(9, 0) == (0, EpochEndOffset(0, 4))
    assert told(3, 5) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
    assert told(0, 0) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)


def told_for_bytes(offset: int, partition_bytes: int, bytes_max: int) -> list[tuple[int, bool]]:
    """Error, and whether there are records, of two partitions with a record each: the same at once and in a session."""
    answers: list[list[tuple[int, bool]]] = []

    def take(topics: list[tuple[TopicKey, list[PartitionData]]]) -> None:
        answers.append([(data.error_code, data.records is not None) for data in topics[0][1]])

    async def scenario() -> None:
        hosted = Hosted()
        for index in (0, 1):
            hosted.write(7, 0, index=index)
        wanted = [FetchPartition(index, -1, offset, -1, -1, partition_bytes) for index in (0, 1)]
        fetches, session = hosted.fetches(), FetchSession()
        asked = FetchRequest(-1, 0, 1, bytes_max, 0, 0, -1, [(TOPIC, wanted)], [], "", None, -1, {})
        at_once = fetches.fetch_at_once(asked, bytes_max)
        if at_once is not None:
            take(at_once)
        session.update(TOPIC, wanted)
        fetches.fetch(session, FetchLimits(0, 1, bytes_max, 0, False), take)

    run(scenario)
    assert all(answer == answers[0] for answer in answers)
    return answers[0]


def test_who_asks_for_less_than_no_bytes_is_told_so_and_not_given_a_batch() -> None:
    refused = (ErrorCode.UNKNOWN_SERVER_ERROR, False)
    assert told_for_bytes(0, -1, 1 << 20) == [refused, refused]
    assert told_for_bytes(0, 1 << 20, -1) == [refused, (0, True)]
    assert told_for_bytes(0, 0, 0) == [(0, True), (0, False)]
    assert told_for_bytes(1, -1, -1) == [(0, False), (0, False)]
    assert told_for_bytes(9, -1, -1) == [(ErrorCode.OFFSET_OUT_OF_RANGE, False)] * 2
