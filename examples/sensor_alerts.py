"""Sensor alerts: machines report their temperature, and a stream says in which minutes one was too hot.

    pip install 'ottla[spark]' confluent-kafka
    python sensor_alerts.py

Readings carry the time at which they were taken, and come late and out of order, as radio is. A Spark stream averages
them by machine and minute of *that* time, waits for late ones up to two minutes (the watermark), and writes an alert
for each minute whose average is too high: once, when the minute is complete, and exactly once in the topic. Readings
that are later than that come when their minute has been judged, and are left out.

In the end the alerts must be those that the readings give when they are averaged in plain Python.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import functions

import ottla
from ottla import spark as ottla_spark

PARTITIONS = 3
SENSORS = [f"press-{number:02}" for number in range(25)]
BEGAN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
MINUTES = 12
LATE_SECONDS_MAX = 90
TOO_HOT = 80.0
READING = "at timestamp, celsius double"
SECONDS_MAX = 60
Alert = tuple[str, str]
"""A sensor and a minute."""


class Sensors:
    """All machines. Some run hot for a while."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self._topic = topic
        self._chance = random.Random(seed)
        self._readings: defaultdict[Alert, list[float]] = defaultdict(list)

    def run(self, count: int) -> None:
        """Readings over some minutes, each sent a while after it was taken."""
        sent = []
        hot = {(sensor, self._chance.randrange(MINUTES)) for sensor in SENSORS if self._chance.random() < 0.4}
        for number in range(count):
            sensor, at = self._chance.choice(SENSORS), BEGAN + timedelta(minutes=MINUTES * number / count)
            base = 88.0 if (sensor, at.minute) in hot else 70.0
            celsius = round(base + self._chance.uniform(-5, 5), 1)
            sent.append((at + timedelta(seconds=self._chance.uniform(0, LATE_SECONDS_MAX)), sensor, at, celsius))
            self._readings[sensor, f"{at:%H:%M}"].append(celsius)
        for _, sensor, at, celsius in sorted(sent):
            self._send(sensor, at, celsius)
        self._flush()

    def go_on(self) -> None:
        """An hour later: a reading of each machine, by which the stream sees that all before is complete."""
        for sensor in SENSORS:
            self._send(sensor, BEGAN + timedelta(hours=1), 20.0)
        self._flush()

    def send_much_too_late(self) -> int:
        """Readings of the first minute that would make it hot everywhere, had they come in time."""
        for sensor in SENSORS:
            self._send(sensor, BEGAN, 10_000.0)
        self._flush()
        return len(SENSORS)

    def alerts(self) -> set[Alert]:
        """What the stream must say."""
        return {place for place, celsius in self._readings.items() if sum(celsius) / len(celsius) > TOO_HOT}

    def _send(self, sensor: str, at: datetime, celsius: float) -> None:
        value = json.dumps({"at": f"{at:%Y-%m-%dT%H:%M:%S.%fZ}", "celsius": celsius})
        self._producer.produce(self._topic, value, sensor)

    def _flush(self) -> None:
        if self._producer.flush(SECONDS_MAX):
            raise SystemExit("not all readings were written")


def judge(bootstrap: str, readings: str, alerts: str, checkpoint: str) -> None:
    """Take what is new, close the minutes that are complete, and go on from there the next time."""
    stored = ottla_spark.stream(readings, bootstrap=bootstrap, startingOffsets="earliest")
    parsed = stored.selectExpr("cast(key as string) as sensor", f"from_json(cast(value as string), '{READING}') as r")
    minutes = (
        parsed.selectExpr("sensor", "r.at", "r.celsius")
        .withWatermark("at", "2 minutes")
        .groupBy("sensor", functions.window("at", "1 minute").alias("minute"))
        .agg(functions.avg("celsius").alias("celsius"))
    )
    hot = minutes.where(f"celsius > {TOO_HOT}").selectExpr(
        "sensor as key", "to_json(struct(date_format(minute.start, 'HH:mm') as minute, celsius)) as value"
    )
    query = (
        hot.writeStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", alerts)
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def read_alerts(bootstrap: str, topic: str) -> list[Alert]:
    """Committed alerts, as an operator's screen would show them."""
    stored = ottla_spark.read(topic, bootstrap=bootstrap, **{"isolation.level": "read_committed"})
    rows = stored.selectExpr("cast(key as string) as sensor", "cast(value as string) as alert").collect()
    return sorted((row["sensor"], json.loads(row["alert"])["minute"]) for row in rows)


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
    parser.add_argument("--readings", type=int, default=20_000, help="how many readings (%(default)s)")
    chosen = parser.parse_args()
    run = uuid.uuid4().hex[:6]
    readings, alerts = f"readings-{run}", f"alerts-{run}"
    with brokers(chosen.bootstrap) as bootstrap, tempfile.TemporaryDirectory() as checkpoint:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for made in admin.create_topics([NewTopic(name, PARTITIONS) for name in (readings, alerts)]).values():
            made.result(SECONDS_MAX)
        sensors = Sensors(bootstrap, readings, chosen.readings)
        sensors.run(chosen.readings)
        sensors.go_on()
        config = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
        spark = ottla_spark.session("sensor alerts", master="local[2]", config=config)
        spark.sparkContext.setLogLevel("ERROR")
        judge(bootstrap, readings, alerts, checkpoint)
        too_late = sensors.send_much_too_late()
        judge(bootstrap, readings, alerts, checkpoint)
        found = read_alerts(bootstrap, alerts)
        spark.stop()
    for sensor, minute in found:
        print(f"{minute} {sensor} was too hot")
    expected = sorted(sensors.alerts())
    if found != expected:
        print(f"These are alerts that should be there and are not, or the other way: {sorted({*found} ^ {*expected})}")
        return 1
    print(f"{len(found)} alerts, each once; {too_late} readings came much too late and changed nothing.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
