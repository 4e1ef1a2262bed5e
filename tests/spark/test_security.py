"""With a Kafka that wants TLS and a login, in the words that Spark's own connector takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients.secure_kafka import USER, SecureKafka, secure_kafka
from tests.spark.conftest import Lab, connector_jars
from tests.spark.test_guide import SECURED, programs

ROWS = 200


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with secure_kafka(tmp_path_factory.mktemp("secure") / "kafka") as running:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{running.ports['PLAINTEXT']}"})
        for made in admin.create_topics([NewTopic(name, 2, 1) for name in ("in", "out", "orders")]).values():
            made.result(60)
        yield running


def spelled(kafka: SecureKafka, password: str = "pencil", **more: str) -> dict[str, str]:
    given = kafka.options("BOTH", "SCRAM-SHA-512", password)
    return {f"kafka.{key}": value for key, value in given.items()} | more


def test_a_topic_to_a_topic_exactly_once(lab: Lab, kafka: SecureKafka) -> None:
    rows = lab.spark.range(ROWS).selectExpr("cast(id as string) as key", "repeat('x', 1000) as value")
    rows.write.format("ottla").mode("append").options(**spelled(kafka, topic="in")).save()
    stream = lab.spark.readStream.format("ottla").options(
        **spelled(kafka, subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="150")
    )
    lab.run(stream.load().select("key", "value"), lab.checkpoint(), **spelled(kafka, topic="out"))
    formats = ["ottla", "kafka"] if connector_jars() else ["ottla"]
    for format in formats:
        given = spelled(kafka, subscribe="out", **{"kafka.isolation.level": "read_committed"})
        found = lab.spark.read.format(format).options(**given).load().selectExpr("cast(key as string) as key").collect()
        assert sorted(int(row.key) for row in found) == list(range(ROWS))


def test_the_program_of_the_guide(lab: Lab, kafka: SecureKafka) -> None:
    (program,) = [program for program in programs() if program.startswith(SECURED)]
    text = program.replace("kafka.example.org:9093", f"127.0.0.1:{kafka.ports['BOTH']}")
    names = {"session": lab.spark, "user": USER, "password": "pencil"}
    exec(compile(text.replace("/etc/kafka/ca.pem", str(kafka.trusted)), "guide", "exec"), names)
    orders: Any = names["orders"]
    assert orders.count() == 0


def test_a_wrong_password_fails_the_query_and_is_not_shown(lab: Lab, kafka: SecureKafka) -> None:
    with pytest.raises(Exception, match="does not accept user 'alice'") as caught:
        lab.spark.read.format("ottla").options(**spelled(kafka, "wrong-one", subscribe="in")).load().collect()
    assert "wrong-one" not in str(caught.value)


def test_a_keystore_of_java_is_refused_with_the_way_out(lab: Lab, kafka: SecureKafka) -> None:
    given = spelled(kafka, subscribe="in") | {"kafka.ssl.truststore.type": "JKS"}
    with pytest.raises(Exception, match=r"ssl\.truststore\.type: JKS is read by Java alone.*keytool"):
        lab.spark.read.format("ottla").options(**given).load().collect()
