"""Payments exactly once: money moves between accounts, and none is lost, made up or moved twice.

    python payments.py

Orders to pay are in one topic. A clerk reads them and writes two entries for each, one that takes money and one that
gives it, to a ledger. Both entries and the clerk's place in the orders are one transaction: they happen together or not
at all. Half-way the clerk freezes in the middle of a transaction, and a second one takes over under the same name. When
the first wakes up and wants to commit, it is locked out. In the end the ledger must balance to the cent.

`exactly_once.py` shows the same pattern with processes that are killed; this one shows what it is good for.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import uuid
from collections import Counter
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import ottla

PARTITIONS = 3
ACCOUNTS = [f"account-{number}" for number in range(20)]
OPENING_CENTS = 100_000
BATCH = 25
SECONDS_MAX = 60
QUIET = {"log_level": 0}


class Clerk:
    """Turns orders into entries of the ledger, a few in each transaction."""

    def __init__(self, bootstrap: str, orders: str, ledger: str) -> None:
        self._orders, self._ledger = orders, ledger
        self._producer = Producer(
            # Nobody else may be at work under this name: whoever was is locked out by init_transactions.
            {"bootstrap.servers": bootstrap, "transactional.id": f"clerk-{orders}", **QUIET}
        )
        self._producer.init_transactions(SECONDS_MAX)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"clerks-{orders}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **QUIET,
            }
        )
        # One clerk does all partitions; it goes on behind the last transaction that was committed, whoever did that.
        places = [TopicPartition(orders, partition) for partition in range(PARTITIONS)]
        known = self._consumer.committed(places, timeout=SECONDS_MAX)
        self._consumer.assign([TopicPartition(at.topic, at.partition, max(at.offset, 0)) for at in known])
        self._ends = {
            at.partition: self._consumer.get_watermark_offsets(at, SECONDS_MAX)[1] - max(at.offset, 0) for at in known
        }

    @property
    def left(self) -> int:
        """Orders that were there when it began and are not done."""
        return sum(self._ends.values())

    def begin(self) -> int:
        """Write the entries of some orders and leave the transaction open; how many orders."""
        orders: list[Message] = []
        while not orders:
            orders = self._consumer.consume(min(BATCH, self.left), timeout=1)
        self._producer.begin_transaction()
        for order in orders:
            if order.error() is not None:
                raise KafkaException(order.error())
            self._write_entries(json.loads(order.value() or b""))
        behind = {order.partition() or 0: (order.offset() or 0) + 1 for order in orders}
        places = [TopicPartition(self._orders, partition, offset) for partition, offset in behind.items()]
        self._producer.send_offsets_to_transaction(places, self._consumer.consumer_group_metadata(), SECONDS_MAX)
        for order in orders:
            self._ends[order.partition() or 0] -= 1
        return len(orders)

    def commit(self) -> None:
        self._producer.commit_transaction(SECONDS_MAX)

    def close(self) -> None:
        self._consumer.close()

    def _write_entries(self, order: dict[str, object]) -> None:
        """What is taken here is given there: two records, of two partitions perhaps, and one truth."""
        cents = int(str(order["cents"]))
        for account, change in ((str(order["from"]), -cents), (str(order["to"]), cents)):
            self._producer.produce(self._ledger, json.dumps({"order": order["id"], "cents": change}), account)


def order_payments(bootstrap: str, topic: str, count: int) -> Counter[str]:
    """Orders of customers; returns what every account must hold when all are done."""
    chance, balances = random.Random(count), Counter(dict.fromkeys(ACCOUNTS, OPENING_CENTS))
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUIET})
    for number in range(count):
        payer, payee = chance.sample(ACCOUNTS, 2)
        cents = chance.randrange(1, 5_000)
        balances.update({payer: -cents, payee: cents})
        producer.produce(topic, json.dumps({"id": number, "from": payer, "to": payee, "cents": cents}), payer)
    if producer.flush(SECONDS_MAX):
        raise SystemExit("not all orders were written")
    return balances


def read_ledger(bootstrap: str, topic: str) -> tuple[Counter[str], Counter[int]]:
    """Balances by account, and entries by order, as a reader of committed records sees them."""
    balances, entries = Counter(dict.fromkeys(ACCOUNTS, OPENING_CENTS)), Counter[int]()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    ends = 0
    while ends < PARTITIONS:
        for message in consumer.consume(500, timeout=1):
            if message.error() is not None:
                ends += 1
                continue
            entry = json.loads(message.value() or b"")
            balances[(message.key() or b"").decode()] += entry["cents"]
            entries[entry["order"]] += 1
    consumer.close()
    return balances, entries


def work(bootstrap: str, orders: str, ledger: str) -> None:
    """Two clerks, of whom the first freezes."""
    first, done = Clerk(bootstrap, orders, ledger), 0
    half = first.left // 2
    while done < half:
        done += first.begin()
        first.commit()
    frozen = first.begin()
    print(f"The first clerk did {done} orders, and froze with {frozen} more in an open transaction.")
    second = Clerk(bootstrap, orders, ledger)
    print(f"The second clerk takes over: {second.left} orders are left.")
    try:
        first.commit()
    except KafkaException as error:
        print(f"The first clerk woke up and was locked out: {error.args[0].str()}")
    else:
        raise SystemExit("the first clerk was not locked out")
    first.close()
    while second.left:
        second.begin()
        second.commit()
    second.close()


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
    parser.add_argument("--orders", type=int, default=1_000, help="how many payments (%(default)s)")
    chosen = parser.parse_args()
    run = uuid.uuid4().hex[:6]
    orders, ledger = f"payment-orders-{run}", f"ledger-{run}"
    with brokers(chosen.bootstrap) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        for made in admin.create_topics([NewTopic(name, PARTITIONS) for name in (orders, ledger)]).values():
            made.result(SECONDS_MAX)
        expected = order_payments(bootstrap, orders, chosen.orders)
        work(bootstrap, orders, ledger)
        balances, entries = read_ledger(bootstrap, ledger)
    total = sum(balances.values()) / 100
    print(f"{len(entries)} orders are in the ledger, and all accounts together hold {total:,.2f}.")
    if balances != expected or entries != Counter(dict.fromkeys(range(chosen.orders), 2)):
        print("The ledger does not balance.")
        return 1
    print("Every payment was made once: the ledger balances to the cent.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
