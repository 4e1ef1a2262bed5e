"""Transactions as clients live them: all or nothing, one producer at a time, whatever happens to the broker."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.clients.conftest import PROPERTIES, MakeTopic, create
from tests.clients.members import Members, members_of, until, values
from tests.clients.test_groups import committed_offsets
from tests.scenarios.brokers import BrokerProcess

MAKES = ["confluent", "kafka-python", "aiokafka"]
WAIT = 10.0
REFUSALS = (KafkaException, kafka.errors.KafkaError, aiokafka.errors.KafkaError)


class Transactions(Protocol):
    """A producer with a transactional id; each call returns when the broker has answered."""

    def begin(self) -> None: ...

    def send(self, topic: str, numbers: range, partitions: int = 1) -> None: ...

    def send_offset(self, place: tuple[str, int], offset: int, group_id: str) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class ConfluentTransactions:
    def __init__(self, bootstrap: str, transactional_id: str, **settings: Any) -> None:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0} | given
        )
        self.producer.init_transactions(WAIT)
        self.begin = self.producer.begin_transaction

    def send(self, topic: str, numbers: range, partitions: int = 1) -> None:
        for number in numbers:
            self.producer.produce(topic, b"%d" % number, partition=number % partitions)
        assert self.producer.flush(WAIT) == 0

    def send_offset(self, place: tuple[str, int], offset: int, group_id: str) -> None:
        consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": group_id})
        metadata = consumer.consumer_group_metadata()
        consumer.close()
        self.producer.send_offsets_to_transaction([TopicPartition(*place, offset)], metadata, WAIT)

    def commit(self) -> None:
        self.producer.commit_transaction(WAIT)

    def abort(self) -> None:
        self.producer.abort_transaction(WAIT)

    def close(self) -> None:
        pass


class KafkaPythonTransactions:
    def __init__(self, bootstrap: str, transactional_id: str, **settings: Any) -> None:
        self.producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, retry_backoff_ms=20, **settings
        )
        self.producer.init_transactions()
        self.begin = self.producer.begin_transaction
        self.commit = self.producer.commit_transaction
        self.abort = self.producer.abort_transaction
        self.close = self.producer.close

    def send(self, topic: str, numbers: range, partitions: int = 1) -> None:
        sent = [self.producer.send(topic, b"%d" % number, partition=number % partitions) for number in numbers]
        for each in sent:
            each.get(timeout=WAIT)

    def send_offset(self, place: tuple[str, int], offset: int, group_id: str) -> None:
        offsets = {kafka.TopicPartition(*place): OffsetAndMetadata(offset, "", -1)}
        self.producer.send_offsets_to_transaction(offsets, group_id)


class AioTransactions:
    def __init__(self, bootstrap: str, transactional_id: str, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self.producer = self._run(self._start(bootstrap, transactional_id, settings))

    async def _start(self, bootstrap: str, transactional_id: str, settings: dict[str, Any]) -> Any:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, retry_backoff_ms=20, **settings
        )
        await producer.start()
        return producer

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, WAIT))

    def begin(self) -> None:
        self._run(self.producer.begin_transaction())

    def send(self, topic: str, numbers: range, partitions: int = 1) -> None:
        async def send_all() -> None:
            for number in numbers:
                await self.producer.send_and_wait(topic, b"%d" % number, partition=number % partitions)

        self._run(send_all())

    def send_offset(self, place: tuple[str, int], offset: int, group_id: str) -> None:
        offsets = {aiokafka.TopicPartition(*place): offset}
        self._run(self.producer.send_offsets_to_transaction(offsets, group_id))

    def commit(self) -> None:
        self._run(self.producer.commit_transaction())

    def abort(self) -> None:
        self._run(self.producer.abort_transaction())

    def close(self) -> None:
        if not self._loop.is_closed():
            try:
                self._run(self.producer.stop())
            finally:
                self._loop.close()


KINDS: dict[str, Callable[..., Transactions]] = {
    "confluent": ConfluentTransactions,
    "kafka-python": KafkaPythonTransactions,
    "aiokafka": AioTransactions,
}
Produce = Callable[..., Transactions]


@pytest.fixture
def produce() -> Iterator[Produce]:
    """Makes producers; they are closed at the end, also those that are past it."""
    made: list[Transactions] = []

    def make(kind: str, bootstrap: str, transactional_id: str, **settings: Any) -> Transactions:
        made.append(KINDS[kind](bootstrap, transactional_id, **settings))
        return made[-1]

    yield make
    for producer in made:
        with contextlib.suppress(Exception):
            producer.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, PROPERTIES) as broker:
        yield broker


def read(bootstrap: str, topic: str, partitions: int = 1, isolation: str = "read_committed") -> list[int]:
    """What a reader finds from the beginning to the end that it may see, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found, ended = [], set()
    deadline = time.monotonic() + WAIT
    while len(ended) < partitions:
        assert time.monotonic() < deadline, "the reader hangs"
        for message in consumer.consume(500, 0.05):
            if message.error() is None:
                found.append(int(message.value()))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
    consumer.close()
    return sorted(found)


# All or nothing


@pytest.mark.parametrize("make", MAKES)
def test_committed_records_are_seen_and_aborted_ones_are_not(
    produce: Produce, quick: str, make_topic: MakeTopic, group_id: str, make: str
) -> None:
    topic = make_topic(partitions=3)
    producer = produce(make, quick, group_id)
    for start, end in [(0, producer.commit), (30, producer.abort), (60, producer.commit), (90, producer.abort)]:
        producer.begin()
        producer.send(topic, range(start, start + 30), 3)
        end()

    assert read(quick, topic, 3) == [*range(30), *range(60, 90)]
    assert read(quick, topic, 3, "read_uncommitted") == list(range(120))


@pytest.mark.parametrize("make", ["confluent-classic", "confluent-consumer", "kafka-python", "aiokafka"])
def test_a_reader_waits_for_the_end_of_a_transaction(
    quick: str, members: Members, make_topic: MakeTopic, group_id: str, make: str
) -> None:
    topic = make_topic(partitions=2)
    reader = members.join(make, group_id, topic, isolation_level="read_committed")
    until(lambda: len(reader.assignment()) == 2, reader)
    producer = ConfluentTransactions(quick, group_id)
    producer.begin()
    producer.send(topic, range(10), 2)
    other = Producer({"bootstrap.servers": quick})
    other.produce(topic, b"100", partition=0)
    assert other.flush(WAIT) == 0
    assert read(quick, topic, 2) == [], "what comes after an open transaction waits with it"
    reader.poll()
    assert reader.reads == []
    producer.commit()
    until(lambda: len(reader.reads) == 11, reader)

    assert values(reader) == [*range(10), 100]


@pytest.mark.parametrize("make", MAKES)
def test_offsets_come_with_the_transaction_or_not_at_all(
    produce: Produce, quick: str, make_topic: MakeTopic, group_id: str, make: str
) -> None:
    topic = make_topic(partitions=1, records=10)
    producer = produce(make, quick, group_id)
    producer.begin()
    producer.send(topic, range(10, 11))
    producer.send_offset((topic, 0), 3, group_id)
    assert committed_offsets(quick, group_id) == {}
    producer.commit()
    until(lambda: committed_offsets(quick, group_id) == {(topic, 0): 3})
    producer.begin()
    producer.send_offset((topic, 0), 7, group_id)
    producer.abort()
    producer.begin()
    producer.send(topic, range(11, 12))
    producer.commit()

    assert committed_offsets(quick, group_id) == {(topic, 0): 3}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_pipeline_passes_each_record_on_once(
    quick: str, members: Members, make_topic: MakeTopic, group_id: str, protocol: str
) -> None:
    """Read, write and commit the offset in one transaction; every third one fails and is done again."""
    source = make_topic(partitions=2, records=60)
    target = create(quick, f"{group_id}-out")
    producer = ConfluentTransactions(quick, group_id)
    taken, rounds = 0, 0
    while taken < 60:
        worker = members.confluent(protocol, group_id, [source])
        until(lambda worker=worker: worker.reads, worker)
        producer.begin()
        for got in worker.reads:
            producer.producer.produce(target, got.value)
        ends = {got.place: got.offset + 1 for got in worker.reads}
        offsets = [TopicPartition(*place, offset) for place, offset in ends.items()]
        metadata = worker.consumer.consumer_group_metadata()
        producer.producer.send_offsets_to_transaction(offsets, metadata, WAIT)
        rounds += 1
        if rounds % 3 == 1:
            producer.abort()
        else:
            producer.commit()
            taken += len(worker.reads)
        worker.close()

    assert read(quick, target) == list(range(60))
    assert committed_offsets(quick, group_id) == {(source, 0): 30, (source, 1): 30}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_of_a_member_that_is_gone_are_refused(
    quick: str, members: Members, make_topic: MakeTopic, group_id: str, protocol: str
) -> None:
    topic = make_topic(partitions=1, records=5)
    gone = members.confluent(protocol, group_id, [topic])
    until(lambda: len(gone.reads) == 5, gone)
    metadata = gone.consumer.consumer_group_metadata()
    gone.close()
    producer = ConfluentTransactions(quick, group_id)
    producer.begin()
    producer.send(topic, range(5, 6))
    with pytest.raises(KafkaException) as refused:
        producer.producer.send_offsets_to_transaction([TopicPartition(topic, 0, 5)], metadata, WAIT)
    assert refused.value.args[0].txn_requires_abort()
    producer.abort()

    assert committed_offsets(quick, group_id) == {}
    assert read(quick, topic) == list(range(5))


# One producer at a time


def write(producer: Transactions, topic: str, numbers: range) -> None:
    producer.send(topic, numbers)
    producer.commit()


@pytest.mark.parametrize("make", MAKES)
def test_a_zombie_is_fenced_and_its_transaction_aborted(
    produce: Produce, quick: str, make_topic: MakeTopic, group_id: str, make: str
) -> None:
    topic = make_topic(partitions=1)
    zombie = produce(make, quick, group_id)
    zombie.begin()
    zombie.send(topic, range(5))
    successor = ConfluentTransactions(quick, group_id)
    assert read(quick, topic) == []
    with pytest.raises(REFUSALS, match=r"(?i)fenced|epoch"):
        write(zombie, topic, range(5, 6))
    successor.begin()
    successor.send(topic, range(10, 15))
    successor.commit()
    with pytest.raises(REFUSALS):
        write(zombie, topic, range(20, 21))

    assert read(quick, topic) == list(range(10, 15))


@pytest.mark.parametrize("make", MAKES)
def test_a_transaction_that_takes_too_long_is_aborted(
    produce: Produce, quick: str, make_topic: MakeTopic, group_id: str, make: str
) -> None:
    topic = make_topic(partitions=1)
    producer = produce(make, quick, group_id, transaction_timeout_ms=1_000)
    producer.begin()
    producer.send(topic, range(5))
    plain = Producer({"bootstrap.servers": quick})
    plain.produce(topic, b"100")
    assert plain.flush(WAIT) == 0
    until(lambda: read(quick, topic) == [100])
    with pytest.raises(REFUSALS):
        producer.commit()

    assert read(quick, topic) == [100]


# A broker that goes and comes back


@pytest.mark.parametrize("ending", ["stop", "kill"])
@pytest.mark.parametrize("make", MAKES)
def test_an_open_transaction_goes_on_after_a_restart(
    produce: Produce, broker: BrokerProcess, ending: str, make: str
) -> None:
    servers = broker.bootstrap_servers
    create(servers, "facts", 2)
    settings = {"reconnect_backoff_ms": 20} if make != "aiokafka" else {}
    producer = produce(make, servers, "writer", **settings)
    producer.begin()
    producer.send("facts", range(10), 2)
    producer.send_offset(("facts", 0), 5, "group")
    getattr(broker, ending)()
    broker.start()
    assert read(servers, "facts", 2) == []
    producer.send("facts", range(10, 20), 2)
    producer.commit()

    assert read(servers, "facts", 2) == list(range(20))
    until(lambda: committed_offsets(servers, "group") == {("facts", 0): 5})


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_successor_or_the_clock_aborts_what_a_dead_producer_left(broker: BrokerProcess, ending: str) -> None:
    servers = broker.bootstrap_servers
    create(servers, "facts")
    left = ConfluentTransactions(servers, "writer")
    left.begin()
    left.send("facts", range(10))
    late = ConfluentTransactions(servers, "slow-writer", transaction_timeout_ms=1_000)
    late.begin()
    late.send("facts", range(10, 20))
    getattr(broker, ending)()
    broker.start()
    assert read(servers, "facts", 1, "read_uncommitted") == list(range(20))
    successor = ConfluentTransactions(servers, "writer")
    successor.begin()
    successor.send("facts", range(20, 30))
    successor.commit()
    until(lambda: read(servers, "facts") == list(range(20, 30)))


def test_what_was_committed_survives_a_kill_at_once(produce: Produce, broker: BrokerProcess) -> None:
    """With kafka-python: after a restart librdkafka 2.16 sends offsets to a handle it has given up, and hangs."""
    servers = broker.bootstrap_servers
    create(servers, "facts", 3)
    producer = produce("kafka-python", servers, "writer", reconnect_backoff_ms=20)
    for start in range(0, 30, 10):
        producer.begin()
        producer.send("facts", range(start, start + 10), 3)
        producer.send_offset(("facts", 0), start, "group")
        producer.commit()
        broker.kill()
        broker.start()
        assert read(servers, "facts", 3) == list(range(start + 10))
        assert committed_offsets(servers, "group") == {("facts", 0): start}


def test_readers_in_a_group_see_each_transaction_whole_through_a_kill(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    create(servers, "facts", 2)
    quickly = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 50}
    with members_of(servers) as members:
        reader = members.confluent("consumer", "group", ["facts"], isolation_level="read_committed", **quickly)
        until(lambda: len(reader.assignment()) == 2, reader)
        producer = ConfluentTransactions(servers, "writer", **quickly)
        producer.begin()
        producer.send("facts", range(10), 2)
        producer.commit()
        producer.begin()
        producer.send("facts", range(10, 20), 2)
        broker.kill()
        broker.start()
        until(lambda: len(reader.reads) == 10, reader)
        assert values(reader) == list(range(10))
        producer.commit()
        until(lambda: len(reader.reads) >= 20, reader)

        assert values(reader) == list(range(20))
