"""Exactly once: read payments, write one receipt for each, and let nothing that happens to a worker lose or double one.

    python examples/exactly_once.py --kills 50

starts a broker, has payments made, and kills the workers as often as it is told; then every payment must have exactly
one receipt.

What a worker does is in `Worker`, and is what a program of yours would do:

1. Its producer has a `transactional.id` of its own, the same after each start. `init_transactions` ends what an earlier
   life left open (it is aborted) and locks that life out, should it still be running somewhere.
2. It takes a few records, and in one transaction writes what follows from them *and* the offsets behind them
   (`send_offsets_to_transaction`, not the consumer's own commit). Both become true together or not at all.
3. Whoever reads the results says `isolation.level=read_committed` and never sees what was aborted.

So a worker may be killed between any two lines: its next life starts behind the last transaction that was committed.
`group.instance.id` makes the group wait for that next life instead of handing the partitions to others at once.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, wait

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import Progress

import ottla

PAYMENTS, RECEIPTS, GROUP = "payments", "receipts", "cashiers"
PARTITIONS = 4
BATCH = 20
WORKERS = 2
SECONDS_MAX = 90.0
QUIET = {"log_level": 3}
"""That the transaction of an earlier life is still being aborted, and is asked for again, is no news."""

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["confluent_kafka", "rich.progress", "ottla"])


def receipt_for(payment: bytes) -> bytes:
    """The work itself. It may do whatever can be done again after a crash."""
    paid = json.loads(payment)
    return json.dumps({"payment": paid["id"], "cents": paid["cents"], "tax": paid["cents"] * 19 // 119}).encode()


class Worker:
    """One life of one worker. `said` hears of each step, so that a test can choose where to kill it."""

    def __init__(self, bootstrap_servers: str, name: str, said: Callable[[str], None] = lambda step: None) -> None:
        self._said = said
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": f"{GROUP}-{name}",
                "transaction.timeout.ms": 10_000,
                **QUIET,
            }
        )
        # Before anything is read: the offsets of an open transaction are not known until it has ended.
        self._producer.init_transactions(30)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": GROUP,
                "group.instance.id": name,
                "session.timeout.ms": 20_000,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                **QUIET,
            }
        )
        self._consumer.subscribe([PAYMENTS])
        self._stopping = False
        said("ready")

    def stop(self, *_: object) -> None:
        """Finish the transaction that is open, then leave."""
        self._stopping = True

    def run(self) -> None:
        while not self._stopping:
            payments = self._consumer.consume(BATCH, timeout=0.5)
            if payments:
                self._handle([_checked(payment) for payment in payments])
        self._consumer.close()

    def _handle(self, payments: list[Message]) -> None:
        """All receipts and the offsets behind their payments, or nothing."""
        try:
            self._producer.begin_transaction()
            self._said("begun")
            for payment in payments:
                self._producer.produce(RECEIPTS, receipt_for(payment.value() or b""), key=payment.key())
            self._said("produced")
            # The group's generation goes along: a worker that was voted out meanwhile is refused here.
            members = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(offsets_behind(payments), members, 30)
            self._said("offsets sent")
            self._producer.commit_transaction(30)
            self._said("committed")
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise  # fenced by a newer life, or worse: this one is over
            self._producer.abort_transaction(30)
            self._rewind()
            self._said("aborted")

    def _rewind(self) -> None:
        """Back to what is committed: the payments of an aborted transaction are read once more."""
        for position in self._consumer.committed(self._consumer.assignment(), timeout=30):
            position.offset = max(position.offset, 0)
            self._consumer.seek(position)


def _checked(message: Message) -> Message:
    if message.error() is not None:
        raise KafkaException(message.error())
    return message


def offsets_behind(messages: list[Message]) -> list[TopicPartition]:
    """For each partition the offset at which its next reader goes on."""
    ends = {(message.topic() or "", message.partition() or 0): (message.offset() or 0) + 1 for message in messages}
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]


def work(bootstrap_servers: str, name: str, steps: Connection | None = None) -> None:
    """A worker process: one life, until SIGTERM or something worse, such as the end of whoever started it."""
    starter = multiprocessing.parent_process()
    if starter is not None:
        threading.Thread(target=_die_with, args=(starter.sentinel,), daemon=True).start()
    worker = Worker(bootstrap_servers, name, steps.send if steps is not None else lambda step: None)
    signal.signal(signal.SIGTERM, worker.stop)
    worker.run()


def _die_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


class Life:
    """A worker process and what it says."""

    def __init__(self, bootstrap_servers: str, name: str) -> None:
        self._steps, theirs = processes.Pipe(duplex=False)
        self.process = processes.Process(target=work, args=(bootstrap_servers, name, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def await_steps(self, count: int, seconds_max: float) -> int:
        """Wait until the worker has done so many steps; how many it did, which is fewer if it has nothing to do."""
        deadline, done = time.monotonic() + seconds_max, 0
        while done < count and self._steps.poll(max(0.0, deadline - time.monotonic())):
            try:
                self._steps.recv()
            except EOFError:
                raise RuntimeError(f"worker {self.process.name} failed: {self.process.exitcode}") from None
            done += 1
        return done

    def kill(self) -> None:
        """kill -9: nothing is finished, closed or said goodbye to."""
        self.process.kill()
        self._ended()

    def stop(self) -> None:
        self.process.terminate()
        self._ended()

    def _ended(self) -> None:
        self.process.join(30)
        self._steps.close()


def create_topics(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, **QUIET})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (PAYMENTS, RECEIPTS)]).values():
        future.result(30)


def pay(bootstrap_servers: str, count: int) -> None:
    """The input: payments with numbers, so that each can be found again."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, **QUIET})
    rng = random.Random(count)
    for number in range(count):
        payment = {"id": number, "cents": rng.randrange(100, 100_000)}
        producer.produce(PAYMENTS, json.dumps(payment), key=str(number))
    if producer.flush(30):
        raise RuntimeError("not every payment was written")


def await_work_done(bootstrap_servers: str) -> None:
    """Wait until the group has committed everything that was paid."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": GROUP, **QUIET})
    partitions = [TopicPartition(PAYMENTS, number) for number in range(PARTITIONS)]
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        committed = {position.partition: position.offset for position in consumer.committed(partitions, timeout=30)}
        if all(committed[part.partition] >= consumer.get_watermark_offsets(part, 30)[1] for part in partitions):
            break
        if time.monotonic() > deadline:
            raise RuntimeError(f"the workers did not finish in time: they are at {committed}")
        time.sleep(0.1)
    consumer.close()


def receipts_of(bootstrap_servers: str) -> Counter[int]:
    """How often each payment has a receipt, as a reader of committed records sees it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(RECEIPTS, number, 0) for number in range(PARTITIONS)])
    found: Counter[int] = Counter()
    finished: set[int] = set()
    deadline = time.monotonic() + SECONDS_MAX
    while len(finished) < PARTITIONS and time.monotonic() < deadline:
        for message in consumer.consume(500, timeout=0.5):
            if message.error() is not None:
                finished.add(message.partition() or 0)
            else:
                found[json.loads(message.value() or b"")["payment"]] += 1
    consumer.close()
    return found


def disagreements(payments: int, receipts: Counter[int]) -> list[str]:
    """What is wrong, in words; empty if every payment has one receipt."""
    missing = [number for number in range(payments) if number not in receipts]
    doubled = [number for number, count in receipts.items() if count > 1]
    wrong = [f"{len(missing)} payments have no receipt, the first is {missing[0]}"] if missing else []
    wrong += [f"{len(doubled)} payments have several, one is {doubled[0]}"] if doubled else []
    return wrong


def lives_of(bootstrap_servers: str, name: str, kills: int, rng: random.Random, killed: Callable[[], None]) -> Life:
    """Kill a worker again and again, each time after some steps of its life; gives the life that is spared."""
    life = Life(bootstrap_servers, name)
    for _ in range(kills):
        life.await_steps(rng.randrange(1, 14), seconds_max=2.0)
        time.sleep(rng.random() * 0.01)  # not at the step itself, but within the next
        life.kill()
        killed()
        life = Life(bootstrap_servers, name)
    return life


def torment(bootstrap_servers: str, kills: int, seed: int, console: Console) -> None:
    """All workers at once, each killed its share of times; then they may finish."""
    with Progress(console=console) as progress, ThreadPoolExecutor(WORKERS) as threads:
        bar = progress.add_task("kill -9", total=kills)
        spared = [
            threads.submit(
                lives_of,
                bootstrap_servers,
                f"worker-{number}",
                kills // WORKERS + (number < kills % WORKERS),
                random.Random(seed + number),
                lambda: progress.advance(bar),
            )
            for number in range(WORKERS)
        ]
        lives = [life.result() for life in spared]
    try:
        await_work_done(bootstrap_servers)
    finally:
        for life in lives:
            life.stop()


def run(bootstrap_servers: str, payments: int, kills: int, seed: int, console: Console) -> list[str]:
    """The whole story on a broker that runs; what is wrong at its end."""
    create_topics(bootstrap_servers)
    pay(bootstrap_servers, payments)
    torment(bootstrap_servers, kills, seed, console)
    receipts = receipts_of(bootstrap_servers)
    console.print(f"{payments:,} payments, {sum(receipts.values()):,} receipts, {kills} kills")
    return disagreements(payments, receipts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--payments", type=int, default=2_000, help="how many payments (default: 2,000)")
    parser.add_argument("--kills", type=int, default=10, help="how often a worker is killed (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="decides who is killed when")
    parser.add_argument("--bootstrap", help="a broker that runs; by default one is started")
    options = parser.parse_args()
    console = Console()
    if options.bootstrap:
        wrong = run(options.bootstrap, options.payments, options.kills, options.seed, console)
    else:
        # Nobody else will come: a new group need not wait for more members before it starts.
        with ottla.Server(process=True, config={"group.initial.rebalance.delay.ms": 0}) as server:
            wrong = run(server.bootstrap_servers, options.payments, options.kills, options.seed, console)
    for complaint in wrong:
        console.print(f"[red]wrong:[/red] {complaint}")
    if not wrong:
        console.print("Every payment has exactly one receipt.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
