"""Apache Kafka's own tools work against Ottla, and its dump tool reads what Ottla wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from tests.clients.kafka_tools import KafkaTools, find_kafka_tools

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("kafka-tools")]

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
VALUE_VERSION = re.compile(r'payload: \{"version":"(\d)"')


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ottla.Server]:
    with ottla.Server(data=tmp_path_factory.mktemp("kafka-tools")) as server:
        yield server


@pytest.fixture(scope="module")
def tools(server: ottla.Server) -> KafkaTools:
    return find_kafka_tools(server.bootstrap_servers)


@pytest.fixture(scope="module")
def topic(tools: KafkaTools) -> str:
    created = tools.ask(
        TOPICS, "--create", "--topic", "orders", "--partitions", "3", "--config", "retention.ms=100000000"
    )
    assert "Created topic orders" in created
    lines = "".join(f"key-{number}\tvalue-{number}\n" for number in range(50))
    properties = ("--reader-property", "parse.key=true")
    tools.ask("org.apache.kafka.tools.ConsoleProducer", "--topic", "orders", *properties, text=lines)
    return "orders"


def test_topics_are_described_with_their_configs(tools: KafkaTools, topic: str) -> None:
    described = tools.ask(TOPICS, "--describe", "--topic", topic)

    assert "PartitionCount: 3" in described
    assert "retention.ms=100000000" in described
    assert described.count("Leader: 1") == 3


def test_configs_are_altered_and_described(tools: KafkaTools, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tools.ask(CONFIGS, "--alter", *entity, "--add-config", "max.message.bytes=2000000")
    described = tools.ask(CONFIGS, "--describe", *entity, "--all")

    assert "max.message.bytes=2000000" in described
    assert "cleanup.policy=delete" in described


def test_offsets_are_listed_and_console_consumer_reads_everything(tools: KafkaTools, topic: str) -> None:
    listed = tools.ask("org.apache.kafka.tools.GetOffsetShell", "--topic", topic)
    counts = [int(line.rsplit(":", 1)[1]) for line in listed.splitlines() if line.startswith(topic)]
    assert sum(counts) == 50

    busiest = counts.index(max(counts))
    read = tools.ask(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--topic",
        topic,
        "--partition",
        str(busiest),
        "--offset",
        "earliest",
        "--max-messages",
        str(counts[busiest]),
    )
    assert f"Processed a total of {counts[busiest]} messages" in read


def test_records_are_deleted_up_to_an_offset(tools: KafkaTools, tmp_path: Path) -> None:
    tools.ask(TOPICS, "--create", "--topic", "short", "--partitions", "1")
    tools.ask("org.apache.kafka.tools.ConsoleProducer", "--topic", "short", text="a\nb\nc\n")
    request = tmp_path / "offsets.json"
    request.write_text(json.dumps({"version": 1, "partitions": [{"topic": "short", "partition": 0, "offset": 2}]}))

    answered = tools.ask("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(request))

    assert "low_watermark: 2" in answered
    assert "short:0:2" in tools.ask("org.apache.kafka.tools.GetOffsetShell", "--topic", "short", "--time", "-2")


def test_log_directories_quorum_features_and_cluster_are_described(
    tools: KafkaTools, topic: str, server: ottla.Server
) -> None:
    assert str(server.data) in tools.ask("org.apache.kafka.tools.LogDirsCommand", "--describe")
    assert "LeaderId:               1" in tools.ask(
        "org.apache.kafka.tools.MetadataQuorumCommand", "describe", "--status"
    )
    assert "metadata.version" in tools.ask("org.apache.kafka.tools.FeatureCommand", "describe")
    assert "Cluster ID:" in tools.run(
        "org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", server.bootstrap_servers
    )


def test_feature_levels_move_and_have_their_effect(tools: KafkaTools, tmp_path: Path) -> None:
    with ottla.Server(data=tmp_path / "data") as other:
        asked = KafkaTools(tools.jars, other.bootstrap_servers)

        def features(*arguments: str, check: bool = True) -> str:
            return asked.run(FEATURES, "--bootstrap-server", other.bootstrap_servers, *arguments, check=check)

        release = features("upgrade", "--release-version", "4.3", check=False)
        for name in ("share.version", "streams.version"):
            assert f"for feature {name}. Local controller 1 does not support this feature." in release
        highest = {"metadata.version": 30, "kraft.version": 1, "group.version": 1, "transaction.version": 2}
        chosen = [word for name, level in highest.items() for word in ("--feature", f"{name}={level}")]
        assert features("upgrade", *chosen).count("was upgraded") == 4
        lower = ("--feature", "group.version=0", "--feature", "transaction.version=0")
        assert features("downgrade", *lower, "--dry-run").count("can be downgraded") == 2
        assert features("downgrade", *lower).count("was downgraded") == 2
        assert "was disabled" in features("disable", "--feature", "eligible.leader.replicas.version")
        described = {line.split()[1]: line for line in features("describe").splitlines()}
        for name in ("group.version", "transaction.version", "eligible.leader.replicas.version"):
            assert "FinalizedVersionLevel: 0" in described[name]

        asked.ask(TOPICS, "--create", "--topic", "t", "--partitions", "1")
        _produce_in_transactions(asked, "older flow")
        assert "Processed a total of 0 messages" in _consume_by_new_protocol(asked)
        assert features("upgrade", *chosen).count("was upgraded") == 4
        assert "Processed a total of 10 messages" in _consume_by_new_protocol(asked)
        _produce_in_transactions(asked, "newer flow")
        # The first bytes of a value are its version: 0 as long as the level was, then 1.
        values = (tmp_path / "data").glob("__transaction_state-*/*.log")
        decoded = asked.run(
            "org.apache.kafka.tools.DumpLogSegments",
            *("--transaction-log-decoder", "--files", ",".join(str(path) for path in values if path.stat().st_size)),
        )
        of_id = [line for line in decoded.splitlines() if "flow" in line]
        versions = {flow: [VALUE_VERSION.search(line) for line in of_id if flow in line] for flow in ("older", "newer")}
        assert {found[1] for found in versions["older"] if found} == {"0"}
        assert {found[1] for found in versions["newer"] if found} == {"1"}


def _produce_in_transactions(tools: KafkaTools, transactional_id: str) -> None:
    produced = tools.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "t", "--num-records", "2000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", transactional_id, "--transaction-duration-ms", "100"),
        *("--producer-props", f"bootstrap.servers={tools.bootstrap_servers}"),
    )
    assert "2000 records sent" in produced


def _consume_by_new_protocol(tools: KafkaTools) -> str:
    """With a group of KIP-848. The tool gives up at once if the broker has none."""
    return tools.run(
        *("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", tools.bootstrap_servers),
        *("--topic", "t", "--group", "g", "--command-property", "group.protocol=consumer"),
        *("--from-beginning", "--max-messages", "10", "--timeout-ms", "60000"),
    )


def test_perf_tools_produce_and_consume(tools: KafkaTools) -> None:
    tools.ask(TOPICS, "--create", "--topic", "perf", "--partitions", "2")
    produced = tools.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "perf", "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={tools.bootstrap_servers}", "acks=all", "enable.idempotence=true"),
    )
    assert "20000 records sent" in produced


def test_dump_log_reads_segments_indexes_snapshots_and_metadata(tools: KafkaTools, tmp_path: Path) -> None:
    with ottla.Server(data=tmp_path / "data") as other:
        asked = KafkaTools(tools.jars, other.bootstrap_servers)
        asked.ask(TOPICS, "--create", "--topic", "dumped", "--partitions", "1")
        asked.run(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", "dumped", "--num-records", "5000", "--record-size", "500", "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={other.bootstrap_servers}", "enable.idempotence=true"),
        )
    partition = tmp_path / "data" / "dumped-0"
    files = ",".join(
        str(path) for path in sorted(partition.iterdir()) if path.suffix in (".log", ".index", ".timeindex")
    )
    dumped = tools.run("org.apache.kafka.tools.DumpLogSegments", "--files", files, "--deep-iteration")
    assert "isvalid: false" not in dumped
    assert "Found timestamp mismatch" not in dumped
    assert "Index position" not in dumped
    assert "Mismatches" not in dumped
    assert dumped.count("| offset:") == 5000
    snapshot = next(partition.glob("*.snapshot"))
    assert "producerId: 0" in tools.run("org.apache.kafka.tools.DumpLogSegments", "--files", str(snapshot))
    metadata = next((tmp_path / "data" / "__cluster_metadata-0").glob("*.log"))
    records = tools.run(
        "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(metadata)
    )
    assert '"type":"TOPIC_RECORD"' in records
