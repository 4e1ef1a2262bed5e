"""A bookstore: one portal, and three back ends that are fed from topics and know nothing of each other.

    python bookstore.py

The portal writes what customers do, and waits for nobody. Behind it are

- security: reads `logins`; three wrong passwords in a row lock an account, which is said in `locked-accounts`.
- orders: reads `orders`, keyed by book, and says in `order-status` what became of each. Two members share the work. A
  book's stock belongs to the member that has the book's partition; what is left is written to `stock` in the same
  transaction. Half-way one member leaves, and the other takes over its books from what `stock` says.
- catalogue: reads `stock`, a compacted topic, and knows what can be bought. It is started when all is over, as a
  back end would be that was written a year later: everything that it needs is in the topic.

In the end all must agree: no book is sold twice, no order is forgotten, and the right accounts are locked.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import ottla

PARTITIONS = 4
BOOKS = [f"book-{number:02}" for number in range(40)]
STOCK_OF_EACH = 12
CUSTOMERS = [f"customer-{number:03}" for number in range(120)]
WRONG_PASSWORDS_MAX = 3
SECONDS_MAX = 90
QUIET = {"log_level": 0}


class Topics:
    """The names, which end in something of this run, so that it can be run again on the same brokers."""

    def __init__(self) -> None:
        self.run = uuid.uuid4().hex[:6]
        self.logins, self.locked, self.orders, self.status, self.stock = (
            f"{name}-{self.run}" for name in ("logins", "locked-accounts", "orders", "order-status", "stock")
        )

    def create(self, bootstrap: str) -> None:
        topics = [NewTopic(name, PARTITIONS) for name in (self.logins, self.locked, self.orders, self.status)]
        # The last word on each book is all that anybody needs.
        topics.append(NewTopic(self.stock, PARTITIONS, config={"cleanup.policy": "compact"}))
        admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        for made in admin.create_topics(topics).values():
            made.result(SECONDS_MAX)


@dataclass
class Portal:
    """What customers do, and what must come of it."""

    lockings: set[str] = field(default_factory=set)
    demand: Counter[str] = field(default_factory=Counter)
    logins: int = 0
    orders: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    wrong: Counter[str] = field(default_factory=Counter)
    """Wrong passwords in a row."""

    def open(self, bootstrap: str, topics: Topics, count: int) -> None:
        """So many customers come."""
        chance, self.logins = self.chance, self.logins + count
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUIET})
        for _ in range(count):
            customer = chance.choice(CUSTOMERS)
            right = chance.random() < 0.8
            self.wrong[customer] = 0 if right else self.wrong[customer] + 1
            if self.wrong[customer] == WRONG_PASSWORDS_MAX:
                self.lockings.add(customer)
            producer.produce(topics.logins, json.dumps({"right": right}), customer)
            if right:
                book, wanted = chance.choice(BOOKS), chance.randrange(1, 3)
                order = {"id": self.orders, "customer": customer, "copies": wanted}
                self.orders += 1
                self.demand[book] += wanted
                producer.produce(topics.orders, json.dumps(order), book)
        if producer.flush(SECONDS_MAX):
            raise SystemExit("the portal could not write everything")


class BackEnd(threading.Thread):
    """A member of a group that handles what comes until it is told to leave."""

    def __init__(self, bootstrap: str, name: str, topic: str, **more: str) -> None:
        super().__init__(name=name, daemon=True)
        self.failure: Exception | None = None
        self.handled = self.partitions = 0
        self._topic = topic
        self._leaving = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{name}-{topic}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **more,
                **QUIET,
            }
        )

    def run(self) -> None:
        try:
            self._consumer.subscribe([self._topic], on_assign=self._assign)
            while not self._leaving.is_set():
                messages = [checked(message) for message in self._consumer.consume(50, timeout=0.2)]
                if messages:
                    self.handle(messages)
            self._consumer.close()
        except Exception as error:
            self.failure = error

    def leave(self) -> None:
        self._leaving.set()
        self.join(SECONDS_MAX)

    def _assign(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self.assigned(places)
        self.partitions = len(places)

    def assigned(self, places: list[TopicPartition]) -> None:
        """Partitions are handed to this member."""

    def handle(self, messages: list[Message]) -> None:
        raise NotImplementedError


class Security(BackEnd):
    """Locks accounts. Told twice that an account is locked, nobody is the worse for it: at least once will do."""

    def __init__(self, bootstrap: str, topics: Topics) -> None:
        super().__init__(bootstrap, "security", topics.logins)
        self._locked = topics.locked
        self._wrong: Counter[str] = Counter()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUIET})

    def handle(self, messages: list[Message]) -> None:
        for message in messages:
            customer = (message.key() or b"").decode()
            self._wrong[customer] = 0 if json.loads(message.value() or b"")["right"] else self._wrong[customer] + 1
            if self._wrong[customer] == WRONG_PASSWORDS_MAX:
                self._producer.produce(self._locked, "three wrong passwords", customer)
        self._producer.flush(SECONDS_MAX)
        self._consumer.commit(asynchronous=False)
        self.handled += len(messages)


class Orders(BackEnd):
    """Sells books, exactly once: statuses, stock and offsets are one transaction."""

    def __init__(self, bootstrap: str, topics: Topics, member: int) -> None:
        super().__init__(bootstrap, "orders", topics.orders, **{"isolation.level": "read_committed"})
        self._servers, self._topics = bootstrap, topics
        self._left: dict[str, int] = {}
        name = f"orders-{member}-{topics.run}"
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, **QUIET})
        self._producer.init_transactions(SECONDS_MAX)

    def assigned(self, places: list[TopicPartition]) -> None:
        """Learn what is left of the books of these partitions: `stock` has the same keys in the same partitions."""
        self._left.clear()
        for book, left in read(self._servers, self._topics.stock, [place.partition for place in places]):
            self._left[book] = int(left)

    def handle(self, messages: list[Message]) -> None:
        try:
            self._sell(messages)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            # The group has moved on meanwhile. Nothing has happened: back to what is committed, and learn it again.
            self._producer.abort_transaction(SECONDS_MAX)
            places = self._consumer.committed(self._consumer.assignment(), timeout=SECONDS_MAX)
            for place in places:
                self._consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))
            self.assigned(places)

    def _sell(self, messages: list[Message]) -> None:
        self._producer.begin_transaction()
        ends: dict[int, int] = {}
        for message in messages:
            book, order = (message.key() or b"").decode(), json.loads(message.value() or b"")
            left = self._left.get(book, STOCK_OF_EACH)
            sold = order["copies"] if order["copies"] <= left else 0
            self._left[book] = left - sold
            self._producer.produce(self._topics.status, json.dumps({**order, "book": book, "sold": sold}), book)
            self._producer.produce(self._topics.stock, str(left - sold), book)
            ends[message.partition() or 0] = (message.offset() or 0) + 1
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in ends.items()]
        self._producer.send_offsets_to_transaction(places, self._consumer.consumer_group_metadata(), SECONDS_MAX)
        self._producer.commit_transaction(SECONDS_MAX)
        self.handled += len(messages)


def checked(message: Message) -> Message:
    if message.error() is not None:
        raise KafkaException(message.error())
    return message


def read(bootstrap: str, topic: str, partitions: list[int]) -> Iterator[tuple[str, str]]:
    """All committed records of some partitions, from the first to what is the last one now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    unfinished = set(partitions)
    while unfinished:
        for message in consumer.consume(500, timeout=1):
            if message.error() is not None:
                unfinished.discard(message.partition() or 0)
            else:
                yield (message.key() or b"").decode(), (message.value() or b"").decode()
    consumer.close()


def wait_for(condition: Callable[[], bool], members: list[BackEnd], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        for member in members:
            if member.failure is not None:
                raise SystemExit(f"{member.name} failed: {member.failure}")
        if time.monotonic() > deadline:
            raise SystemExit(f"it took too long until {what}")
        time.sleep(0.05)


def do_business(bootstrap: str, topics: Topics, portal: Portal, count: int) -> None:
    """The portal is open, the back ends work, and one of them leaves half-way."""
    security = Security(bootstrap, topics)
    first, second = Orders(bootstrap, topics, 1), Orders(bootstrap, topics, 2)
    members: list[BackEnd] = [security, first, second]
    for member in members:
        member.start()
    shared = [first, second]
    wait_for(lambda: all(0 < each.partitions < PARTITIONS for each in shared), members, "both members had partitions")
    portal.open(bootstrap, topics, count // 2)
    wait_for(lambda: first.handled > 0 and second.handled > 0, members, "both members had orders")
    first.leave()
    print(f"Two members sold books; one left after {first.handled} orders, and the other took over.")
    portal.open(bootstrap, topics, count - count // 2)
    wait_for(lambda: first.handled + second.handled >= portal.orders, members, "all orders were handled")
    wait_for(lambda: security.handled >= portal.logins, members, "all logins were looked at")
    for member in members[::2]:
        member.leave()


def disagreements(bootstrap: str, topics: Topics, portal: Portal) -> list[str]:
    """What is wrong, in words."""
    everywhere = list(range(PARTITIONS))
    statuses = [json.loads(value) for _, value in read(bootstrap, topics.status, everywhere)]
    catalogue = {book: int(left) for book, left in read(bootstrap, topics.stock, everywhere)}
    locked = {customer for customer, _ in read(bootstrap, topics.locked, everywhere)}
    sold = Counter[str]()
    for status in statuses:
        sold[status["book"]] += status["sold"]
    print(
        f"{sum(sold.values())} copies were sold, {sum(1 for status in statuses if not status['sold'])} orders refused."
    )
    print(f"The catalogue has {sum(1 for left in catalogue.values() if left)} books that can still be bought.")
    print(f"{len(locked)} accounts are locked.")
    wrong = []
    if sorted(status["id"] for status in statuses) != list(range(portal.orders)):
        wrong.append("not every order has exactly one status")
    for book, wanted in portal.demand.items():
        if sold[book] + catalogue.get(book, STOCK_OF_EACH) != STOCK_OF_EACH or catalogue.get(book, 0) < 0:
            wrong.append(f"{book}: {sold[book]} sold, and the catalogue says that {catalogue.get(book)} are left")
        if wanted <= STOCK_OF_EACH and sold[book] != wanted:
            wrong.append(f"{book}: {wanted} wanted and there, {sold[book]} sold")
    if locked != portal.lockings:
        wrong.append(f"accounts that should be locked, or should not: {sorted(locked ^ portal.lockings)}")
    return wrong


@contextlib.contextmanager
def brokers(bootstrap: str | None) -> Iterator[str]:
    """Those that were named, or one that lives as long as this program."""
    if bootstrap is not None:
        yield bootstrap
        return
    with ottla.Server(process=True) as server:
        yield server.bootstrap_servers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", help="host:port of brokers; without it one is started")
    parser.add_argument("--logins", type=int, default=600, help="how often somebody comes (%(default)s)")
    chosen = parser.parse_args()
    topics, portal = Topics(), Portal()
    with brokers(chosen.bootstrap) as bootstrap:
        topics.create(bootstrap)
        do_business(bootstrap, topics, portal, chosen.logins)
        wrong = disagreements(bootstrap, topics, portal)
    for complaint in wrong:
        print(f"wrong: {complaint}")
    if not wrong:
        print("Portal, security, orders and catalogue agree.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
