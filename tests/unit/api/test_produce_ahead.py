"""Requests of one receive: one write per partition, each answered as if it had come alone."""

from __future__ import annotations

import asyncio
import errno
from typing import cast

import pytest

from ottla.api.deferred import Deferred
from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.appending import Appended
from ottla.runtime.opening import LOGS_INLINE_MAX
from ottla.runtime.partition import Partition
from ottla.wire.batch import read_header
from ottla.wire.produce import ProducedPartition
from ottla.wire.produce_client import parse_response
from tests.unit.api import replica_services
from tests.unit.api.produce_groups import GROUPS, Group, Sender
from tests.unit.api.produce_services import PRIMED, Broker
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, ProducerFields, batch_of
from tests.unit.runtime.hosted import TOPIC, Hosted, run
from tests.unit.runtime.replicas import TOPIC as REPLICATED
from tests.unit.runtime.replicas import Cluster

TRANSACTIONAL = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.fixture(params=list(GROUPS))
def group(request: pytest.FixtureRequest) -> Group:
    """Compiled where it was built, and interpreted."""
    return GROUPS[request.param]


def rows(answers: list[bytes], version: int = 9) -> list[list[ProducedPartition]]:
    for number, answer in enumerate(answers, 1):
        assert int.from_bytes(answer[:4]) == number
    return [parse_response(memoryview(answer), 5, version).topics[0][1] for answer in answers]


def offsets(answers: list[bytes]) -> list[list[int]]:
    assert not any(row.error_code for produced in rows(answers) for row in produced)
    return [[row.base_offset - PRIMED for row in produced] for produced in rows(answers)]


def counted_writes(broker: Broker) -> list[int]:
    sizes: list[int] = []

    def note(size: int) -> OSError | None:
        sizes.append(size)
        return None

    cast(CrashDisk, broker.services.world.disk).fail_writes = note
    return sizes


def test_each_partition_is_written_once_and_each_request_answered(group: Group) -> None:
    async def scenario() -> None:
        broker = Broker(Hosted())
        sender, writes = Sender(broker.services, group), counted_writes(broker)
        sender.receive([sender.frame([(1, batch_of(2)), (0, batch_of(3))]) for _ in range(3)])
        assert writes == [3 * len(batch_of(2)), 3 * len(batch_of(3))]
        assert sender.direct == 3
        assert offsets(await sender.settled()) == [[0, 0], [2, 3], [4, 6]]
        assert broker.offsets(0) == [0, 3, 6]
        assert broker.offsets(1) == [0, 2, 4]
        assert broker.hosted.partition().counters.produce_requests == 6
        assert broker.services.metrics.requests[0] == 3

    run(scenario)


def test_while_the_broker_starts_nothing_overtakes_a_request_that_waits_for_it(group: Group) -> None:
    async def scenario() -> None:
        broker = Broker(Hosted())
        sender = Sender(broker.services, group)
        broker.services.is_ready = False
        frames = [sender.frame([(0, batch_of(3))]) for _ in range(2)]
        served = group(broker.services, sender, frames)
        assert [served.answer(number) for number in (0, 1)] == [None, None]
        served.close()
        assert broker.offsets(0) == []
        broker.services.is_ready = True
        sender.receive(frames)
        assert offsets(await sender.settled()) == [[0], [3]]

    run(scenario)


def test_a_batch_that_is_refused_stops_its_partition_alone(group: Group) -> None:
    async def scenario() -> None:
        broker = Broker(Hosted())
        sender, damaged = Sender(broker.services, group), batch_of()
        damaged[-1] ^= 1
        frames = [sender.frame([(0, batch_of()), (1, batch_of())]) for _ in range(2)]
        frames.append(sender.frame([(0, damaged), (1, batch_of())]))
        frames.append(sender.frame([(0, batch_of()), (1, batch_of())]))
        sender.receive(frames)
        assert sender.direct == 2
        found = rows(await sender.settled())
        assert [row.error_code for row in found[2]] == [ErrorCode.CORRUPT_MESSAGE, 0]
        assert [row.base_offset - PRIMED for row in found[3]] == [2, 3]
        assert broker.offsets(0) == [0, 1, 2]
        assert broker.offsets(1) == [0, 1, 2, 3]

    run(scenario)


def test_a_partition_that_is_named_twice_is_served_in_order(group: Group) -> None:
    async def scenario() -> None:
        broker = Broker(Hosted())
        sender = Sender(broker.services, group)
        frames = [sender.frame([(0, batch_of())]), sender.frame([(0, batch_of()), (0, batch_of(2))])]
        sender.receive([*frames, sender.frame([(0, batch_of())])])
        assert offsets(await sender.settled()) == [[0], [1, 2], [4]]

    run(scenario)


def test_what_was_sent_before_is_found_again(group: Group) -> None:
    async def scenario() -> None:
        broker = Broker(Hosted())
        sender = Sender(broker.services, group)
        batches = [batch_of(producer=ProducerFields(7, 0, sequence)) for sequence in (0, 1, 1, 2)]
        sender.receive([sender.frame([(0, batch)]) for batch in batches])
        assert offsets(await sender.settled()) == [[0], [1], [1], [2]]
        assert broker.offsets() == [0, 1, 2]

    run(scenario)


def test_a_producer_that_another_one_has_followed_writes_nothing(group: Group) -> None:
    async def scenario() -> None:
        broker = Broker(Hosted())
        sender = Sender(broker.services, group)
        for epoch, sequence in ((1, 0), (1, 1), (0, 2)):
            sender.receive([sender.frame([(0, batch_of(producer=ProducerFields(7, epoch, sequence)))])])
        codes = [row.error_code for (row,) in rows(await sender.settled())]
        assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH]
        assert broker.offsets() == [0, 1]

    run(scenario)


def test_who_has_a_transaction_open_writes_nothing_beside_it(group: Group) -> None:
    async def scenario() -> None:
        broker = Broker(Hosted())
        sender = Sender(broker.services, group)
        broker.hosted.write(7, 0)
        sender.receive([sender.frame([(0, batch_of(producer=ProducerFields(7, 0, 1)))])])
        assert [row.error_code for (row,) in rows(await sender.settled())] == [ErrorCode.INVALID_TXN_STATE]
        assert broker.offsets() == [0]

    run(scenario)


def test_what_a_new_leader_writes_first_begins_its_epoch(group: Group) -> None:
    async def scenario() -> None:
        broker = Broker(Hosted())
        sender, partition = Sender(broker.services, group), broker.hosted.partition()
        partition.leader_epoch = 3
        sender.receive([sender.frame([(0, batch_of(2))]) for _ in range(2)])
        assert offsets(await sender.settled()) == [[0], [2]]
        assert partition.log.epochs.entries[-1] == (3, PRIMED)

    run(scenario)


def test_what_is_to_be_flushed_is_flushed_before_it_is_answered(group: Group) -> None:
    async def scenario() -> None:
        broker = Broker(Hosted({TOPIC: TopicConfig(flush_messages=PRIMED + 1)}))
        sender = Sender(broker.services, group)
        sender.receive([sender.frame([(0, batch_of())])])
        assert sender.direct == 0
        assert offsets(await sender.settled()) == [[0]]
        assert broker.hosted.partition().log.recovery_point == PRIMED + 1

    run(scenario)


@pytest.mark.parametrize(
    ("config", "batch", "code"),
    [
        (TopicConfig(), batch_of(transactional=True, producer=ProducerFields(7, 0, 0)), TRANSACTIONAL),
        (TopicConfig(timestamp_after_max_ms=1000), batch_of(timestamp=NOW_MS + 5000), ErrorCode.INVALID_TIMESTAMP),
        (TopicConfig(timestamp_before_max_ms=1000), batch_of(timestamp=NOW_MS - 5000), ErrorCode.INVALID_TIMESTAMP),
        (TopicConfig(max_message_bytes=200), batch_of(value=b"x" * 200), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_what_a_topic_does_not_take_is_not_written(
    group: Group, config: TopicConfig, batch: bytearray, code: ErrorCode
) -> None:
    async def scenario() -> None:
        broker = Broker(Hosted({TOPIC: config}))
        sender = Sender(broker.services, group)
        sender.receive([sender.frame([(0, batch_of())]), sender.frame([(0, batch)]), sender.frame([(0, batch_of())])])
        assert sender.direct == 1
        found = [row.error_code for (row,) in rows(await sender.settled())]
        assert found == [ErrorCode.NONE, code, ErrorCode.NONE]
        assert broker.offsets() == [0, 1]

    run(scenario)


@pytest.mark.parametrize("topic", [TOPIC, "__consumer_offsets"])
def test_records_that_are_looked_into_and_internal_topics_take_the_ordinary_way(group: Group, topic: str) -> None:
    async def scenario() -> None:
        broker = Broker(Hosted({topic: TopicConfig(compression_type="gzip" if topic == TOPIC else "producer")}))
        sender = Sender(broker.services, group)
        sender.receive([sender.frame([(0, batch_of())], topic=topic) for _ in range(2)])
        assert sender.direct == 0
        expected = ErrorCode.NONE if topic == TOPIC else ErrorCode.INVALID_TOPIC_EXCEPTION
        assert [row.error_code for (row,) in rows(await sender.settled())] == [expected] * 2

    run(scenario)


def test_nothing_overtakes_a_batch_that_is_on_a_longer_way(group: Group) -> None:
    async def scenario() -> None:
        broker = Broker(Hosted())
        sender, partition = Sender(broker.services, group), broker.hosted.partition()
        before: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        broker.services.appender.tails[partition] = before
        sender.receive([sender.frame([(0, batch_of(3))])])
        assert sender.direct == 0
        appended = partition.append(memoryview(batch := batch_of(2)), read_header(batch), NOW_MS)
        before.set_result(appended)
        assert offsets(await sender.settled()) == [[2]]

    run(scenario)


def test_a_topic_whose_batches_are_stamped_takes_the_ordinary_way(group: Group) -> None:
    async def scenario() -> None:
        topics = {TOPIC: TopicConfig(timestamp_type_log_append=True)}
        broker = Broker(Hosted(topics))
        sender = Sender(broker.services, group)
        sender.receive([sender.frame([(0, batch_of())]) for _ in range(2)])
        assert sender.direct == 0
        assert all(row.log_append_time_ms > 0 for (row,) in rows(await sender.settled()))

    run(scenario)


def test_without_space_every_request_is_told_so_and_later_ones_are_stored(group: Group) -> None:
    async def scenario() -> None:
        broker = Broker(Hosted())
        sender, disk = Sender(broker.services, group), cast(CrashDisk, broker.services.world.disk)
        disk.fail_writes = lambda size: OSError(errno.ENOSPC, "No space left on device")
        sender.receive([sender.frame([(0, batch_of())]) for _ in range(3)])
        assert {row.error_code for (row,) in rows(await sender.settled())} == {ErrorCode.KAFKA_STORAGE_ERROR}
        disk.fail_writes = lambda size: None
        sender.receive([sender.frame([(0, batch_of())]) for _ in range(2)])
        assert broker.offsets() == [0, 1]

    run(scenario)


class TwoDirectories(Hosted):
    """The partitions below `failing` lie in a directory that goes offline with the first write that fails."""

    def __init__(self, partitions: int, failing: int) -> None:
        self._failing = failing
        super().__init__(partitions=partitions)
        self.world.disk.makedirs("/spare")

    def _open_log(self, partition: Partition, config: TopicConfig) -> PartitionLog:
        self._directory = "/data" if partition.index < self._failing else "/spare"
        if self.failures and self._directory == "/data":
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the directory is offline")
        return super()._open_log(partition, config)

    def fail_write(self, number: int) -> None:
        left = [None] * number
        error = OSError(errno.EIO, "Input/output error")
        cast(CrashDisk, self.world.disk).fail_writes = lambda size: left.pop() if left else error


def test_where_a_directory_fails_what_was_written_to_another_one_is_not_written_again(group: Group) -> None:
    async def scenario() -> None:
        failing = LOGS_INLINE_MAX + 1
        broker = Broker(hosted := TwoDirectories(failing + 3, failing))
        sender, others = Sender(broker.services, group), range(failing, failing + 3)
        hosted.fail_write(len(others))
        sender.receive([sender.frame([(index, batch_of()) for index in [*others, *range(failing)]])])
        (found,) = rows(await sender.settled())
        assert [row.error_code for row in found] == [0] * 3 + [ErrorCode.KAFKA_STORAGE_ERROR] * failing
        assert [row.base_offset - PRIMED for row in found[:3]] == [0] * 3
        assert [broker.offsets(index) for index in others] == [[0]] * 3

    run(scenario)


def test_what_was_written_to_a_directory_that_then_failed_is_refused_and_the_rest_is_answered(group: Group) -> None:
    async def scenario() -> None:
        broker = Broker(hosted := TwoDirectories(3, 2))
        sender = Sender(broker.services, group)
        hosted.fail_write(2)
        sender.receive([sender.frame([(index, batch_of()) for index in (2, 0, 1)]) for _ in range(2)])
        found = [[row.error_code for row in produced] for produced in rows(await sender.settled())]
        assert found == [[ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR]] * 2
        assert broker.offsets(2) == [0, 1]

    run(scenario)


def test_who_never_asks_for_what_was_written_leaves_nothing_behind(group: Group) -> None:
    async def scenario() -> None:
        broker = Broker(Hosted())
        sender = Sender(broker.services, group)
        served = group(broker.services, sender, [sender.frame([(0, batch_of())]) for _ in range(3)])
        first = served.answer(0)
        assert first is not None
        served.close()  # The connection broke.
        other = Sender(broker.services, None)
        other.receive([other.frame([(0, batch_of())])])
        assert offsets(await other.settled()) == [[3]]
        assert broker.offsets() == [0, 1, 2, 3]

    run(scenario)


def test_with_followers_the_answers_wait_for_them(group: Group) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        sender = Sender(replica_services.services(cluster, 1), group)
        sender.receive([sender.frame([(0, batch_of())], acks=1, topic=REPLICATED) for _ in range(PRIMED)])
        frames = [sender.frame([(0, batch_of())], acks=-1, topic=REPLICATED) for _ in range(3)]
        frames.append(sender.frame([(0, batch_of())], acks=1, topic=REPLICATED))
        sender.receive(frames)
        held, at_once = sender.answers[2:5], sender.answers[5]
        assert sender.direct == 4
        assert all(isinstance(answer, Deferred) and not answer.done for answer in held)
        assert isinstance(at_once, bytes)
        for follower in (2, 2, 3, 3):
            cluster.replicate(follower)
        assert [row.base_offset for (row,) in rows(await sender.settled())] == [0, 1, 2, 3, 4, 5]

    run(scenario)


def test_who_waits_for_all_is_refused_where_too_few_are_in_sync_whoever_came_before(group: Group) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        services = replica_services.services(cluster, 1)
        sender, topic = Sender(services, group), services.partitions.topic(REPLICATED)
        topic.set_config(TopicConfig(min_insync_replicas=2))
        sender.receive([sender.frame([(0, batch_of())], topic=REPLICATED) for _ in range(PRIMED)])
        services.partitions.leader(REPLICATED, 0).isr = (1,)
        sender.receive([sender.frame([(0, batch_of())], acks=acks, topic=REPLICATED) for acks in (1, -1, 1)])
        codes = [row.error_code for (row,) in rows(await sender.settled())]
        assert sender.direct == 1
        assert codes[PRIMED:] == [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE]
        assert services.partitions.leader(REPLICATED, 0).log.log_end_offset == PRIMED + 2

    run(scenario)
