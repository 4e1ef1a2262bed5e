"""Log aggregation: lines of many hosts in, clean records and a report out, and no line forgotten.

    pip install 'ottla[spark]' confluent-kafka
    python log_aggregation.py

Hosts write their log lines to one topic, as text, keyed by host. A Spark stream takes each line apart and routes it:
what it understands becomes JSON in `logs-clean`, what it does not goes to `logs-bad` as it came, with the reason in a
header. Both are written exactly once. Then a batch job over `logs-clean` counts lines by service, minute and level. In
the end every line must be in one of the two topics, once, and the report must say what was written.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from ottla import spark as ottla_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 3
SERVICES = ("web", "orders", "catalogue", "mail")
LEVELS = ("INFO", "INFO", "INFO", "WARN", "ERROR")
BEGAN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
GARBAGE = (
    "",
    "Traceback (most recent call last):",
    '  File "app.py", line 7',
    "\x00\x01",
    "2026-01-05 INFO no host",
)
LINE = r"^(\S+T\S+Z) (\w+)/(\d+) (INFO|WARN|ERROR) (.*)$"
"""When, which service, which host of it, how bad, and what."""
SECONDS_MAX = 60
Place = tuple[str, str, str]
"""A service, a minute, and a level."""


def write_logs(bootstrap: str, topic: str, count: int) -> tuple[Counter[Place], int]:
    """What the hosts write: lines, and now and then something that is none. Returns the truth: counts, bad lines."""
    chance, expected, bad = random.Random(count), Counter[Place](), 0
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(count):
        service, host, level = chance.choice(SERVICES), chance.randrange(1, 6), chance.choice(LEVELS)
        at = BEGAN + timedelta(seconds=300 * number / count)
        if chance.random() < 0.03:
            line, bad = chance.choice(GARBAGE), bad + 1
        else:
            line = f"{at:%Y-%m-%dT%H:%M:%SZ} {service}/{host} {level} request {number} took {chance.randrange(900)} ms"
            expected[service, f"{at:%H:%M}", level] += 1
        producer.produce(topic, line, f"{service}/{host}")
    if producer.flush(SECONDS_MAX):
        raise SystemExit("not all lines were written")
    return expected, bad


def routed(lines: DataFrame, clean: str, bad: str) -> DataFrame:
    """One row for each line: to which topic it goes, and as what."""
    texts = lines.selectExpr("key", "value", "cast(value as string) as line")
    parsed = texts.selectExpr("*", f"line rlike r'{LINE}' as good")
    parts = {"at": 1, "service": 2, "host": 3, "level": 4, "text": 5}
    fields = ", ".join(f"regexp_extract(line, r'{LINE}', {number}) as {name}" for name, number in parts.items())
    return parsed.selectExpr(
        "key",
        f"if(good, '{clean}', '{bad}') as topic",
        f"if(good, cast(to_json(struct({fields})) as binary), value) as value",
        "if(good, null, array(struct('reason' as key, cast('not a log line' as binary) as value))) as headers",
    )


def aggregate(spark: SparkSession, bootstrap: str, raw: str, clean: str, bad: str) -> None:
    """Everything that is there now; run again with the same checkpoint it would go on behind it."""
    lines = ottla_spark.stream(raw, bootstrap=bootstrap, startingOffsets="earliest")
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            routed(lines, clean, bad)
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def report(bootstrap: str, clean: str) -> Counter[Place]:
    """Lines by service, minute and level."""
    stored = ottla_spark.read(clean, bootstrap=bootstrap, **{"isolation.level": "read_committed"})
    lines = stored.selectExpr("from_json(cast(value as string), 'at string, service string, level string') as line")
    counted = lines.selectExpr("line.service", "substring(line.at, 12, 5) as minute", "line.level")
    rows = counted.groupBy("service", "minute", "level").count().collect()
    return Counter({(row["service"], row["minute"], row["level"]): row["count"] for row in rows})


def count_bad(bootstrap: str, bad: str) -> int:
    """Lines that were put aside and say why."""
    options = {"isolation.level": "read_committed", "includeHeaders": "true"}
    stored = ottla_spark.read(bad, bootstrap=bootstrap, **options)
    return stored.where("cast(headers[0].value as string) = 'not a log line'").count()


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
    parser.add_argument("--lines", type=int, default=20_000, help="how many log lines (%(default)s)")
    chosen = parser.parse_args()
    run = uuid.uuid4().hex[:6]
    raw, clean, bad = (f"{name}-{run}" for name in ("logs", "logs-clean", "logs-bad"))
    with brokers(chosen.bootstrap) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for made in admin.create_topics([NewTopic(name, PARTITIONS) for name in (raw, clean, bad)]).values():
            made.result(SECONDS_MAX)
        expected, bad_expected = write_logs(bootstrap, raw, chosen.lines)
        spark = ottla_spark.session("log aggregation", master="local[2]")
        spark.sparkContext.setLogLevel("ERROR")
        aggregate(spark, bootstrap, raw, clean, bad)
        counted, bad_counted = report(bootstrap, clean), count_bad(bootstrap, bad)
        spark.stop()
    for service in SERVICES:
        errors = sum(count for (name, _, level), count in counted.items() if (name, level) == (service, "ERROR"))
        lines = sum(count for (name, _, _), count in counted.items() if name == service)
        print(f"{service:10} {lines:6} lines, {errors:5} errors")
    print(f"{bad_counted} lines were none, and are put aside.")
    if counted != expected or bad_counted != bad_expected:
        print(f"The report is wrong: {expected.total()} good and {bad_expected} bad lines were written.")
        return 1
    print("Every line is in one place, once.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
