"""The metrics page, read by Prometheus' own parser: what a dashboard finds there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla import __version__
from ottla.api.entry import Api
from ottla.core.controller.image import MetadataImage
from ottla.model.configs.definition import ResourceType
from ottla.model.errors import ApiError
from ottla.model.ids import ZERO_UUID
from ottla.runtime.telemetry import Push
from ottla.runtime.telemetry_subscriptions import TelemetryClient
from ottla.server.exposition import Exposition
from ottla.server.listener import Listener
from ottla.server.loop_watch import LoopWatch
from ottla.server.metric_text import Family
from ottla.server.process_values import process_values
from tests.unit.server.broker_state import CLUSTER_ID, BrokerState, partition


class Page:
    """A page that was parsed: types by family, values by name and labels."""

    def __init__(self, text: str) -> None:
        self.types: dict[str, str] = {}
        self.values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for family in text_string_to_metric_families(text):
            # The parser leaves `_total` out of a counter's family.
            name = f"{family.name}_total" if family.type == "counter" else family.name
            assert name not in self.types, f"{name} is on the page twice"
            self.types[name] = family.type
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert key not in self.values, f"{key} is on the page twice"
                self.values[key] = sample.value

    def value(self, name: str, **labels: str) -> float | None:
        return self.values.get((name, tuple(sorted(labels.items()))))

    def labels(self, name: str) -> list[dict[str, str]]:
        return [dict(labels) for found, labels in self.values if found == name]


class Broker(BrokerState):
    """A broker whose page can be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ready = True
        self.listeners: list[Listener] = []
        produce = Api(key=0, name="Produce", min_version=3, max_version=13, handler=lambda *_: None, hot=True)
        self.exposition = Exposition(
            self.services,
            LoopWatch(),
            lambda: self.is_ready,
            apis=[produce],
            listeners=self.listeners,
        )

    def text(self) -> str:
        return "".join(self.exposition.render(process_values()))

    def page(self) -> Page:
        return Page(self.text())


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_an_empty_broker_has_a_page(broker: Broker) -> None:
    page = broker.page()
    assert page.value("ottla_build_info", version=__version__, cluster_id=CLUSTER_ID, node_id="1") == 1
    assert page.value("kafka_server_kafkaserver_brokerstate") == 3
    assert page.value("kafka_controller_kafkacontroller_globalpartitioncount") == 0


def test_the_page_says_that_a_broker_does_not_serve_yet(broker: Broker) -> None:
    broker.is_ready = False
    assert broker.page().value("kafka_server_kafkaserver_brokerstate") == 1


def test_dashboards_of_kafka_exporter_find_their_names(broker: Broker) -> None:
    broker.add_topic("orders", partition(), partition(replicas=(1, 2, 3), isr=(1, 3)))
    broker.touch("orders", 1, start=5, end=12, size=900)
    page = broker.page()
    assert page.value("kafka_brokers") == 1
    assert page.value("kafka_broker_info", id="1", address="host-1:9092") == 1
    assert page.value("kafka_topic_partitions", topic="orders") == 2
    expected = {
        "leader": 1,
        "replicas": 3,
        "in_sync_replica": 2,
        "leader_is_preferred": 1,
        "under_replicated_partition": 1,
        "current_offset": 12,
        "oldest_offset": 5,
    }
    for name, value in expected.items():
        assert page.value(f"kafka_topic_partition_{name}", topic="orders", partition="1") == value, name
        assert page.types[f"kafka_topic_partition_{name}"] == "gauge"


def test_dashboards_of_strimzi_find_their_names(broker: Broker) -> None:
    broker.add_topic("orders", partition(), partition(replicas=(1, 2), isr=(1,)), min_isr=2)
    broker.touch("orders", 0, start=5, end=12, size=900, segments=3)
    page = broker.page()
    log = {"size": 900, "logstartoffset": 5, "logendoffset": 12, "numlogsegments": 3}
    for name, value in log.items():
        assert page.value(f"kafka_log_log_{name}", topic="orders", partition="0") == value
    assert page.value("kafka_cluster_partition_underminisr", topic="orders", partition="1") == 1
    assert page.value("kafka_cluster_partition_atminisr", topic="orders", partition="0") == 1
    replicas = {
        "leadercount": 2,
        "partitioncount": 2,
        "underreplicatedpartitions": 1,
        "underminisrpartitioncount": 1,
        "atminisrpartitioncount": 1,
    }
    for name, value in replicas.items():
        assert page.value(f"kafka_server_replicamanager_{name}") == value, name
    assert page.value("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert page.value("kafka_controller_kafkacontroller_globaltopiccount") == 1
    assert page.value("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert page.value("kafka_server_raftmetrics_current_state", current_state="leader") == 1
    assert page.value("kafka_server_raftmetrics_high_watermark") == 42


def test_a_partition_without_a_leader_is_seen(broker: Broker) -> None:
    broker.add_topic("orders", partition(leader=-1, replicas=(1, 2), isr=()))
    page = broker.page()
    assert page.value("kafka_controller_kafkacontroller_offlinepartitionscount") == 1
    assert page.value("kafka_topic_partition_under_replicated_partition", topic="orders", partition="0") == 1
    assert page.labels("kafka_topic_partition_leader") == []


def test_a_sum_over_brokers_counts_each_partition_once(broker: Broker) -> None:
    """What others lead they report, and what the cluster has the controller reports."""
    broker.add_topic("orders", partition(leader=2, replicas=(2, 1)), partition(leader=-1, replicas=(1,)))
    broker.quorum_leader = 2
    page = broker.page()
    assert page.labels("kafka_topic_partition_replicas") == []
    assert page.value("kafka_brokers") is None
    assert page.value("kafka_topic_partitions", topic="orders") is None
    assert page.value("kafka_controller_kafkacontroller_activecontrollercount") == 0
    assert page.value("kafka_server_replicamanager_partitioncount") == 2
    assert page.value("kafka_server_replicamanager_leadercount") == 0


def test_a_fenced_broker_is_not_counted_as_there(broker: Broker) -> None:
    broker.add_topic("orders")
    broker.add_broker(2, fenced=True)
    page = broker.page()
    assert page.value("kafka_brokers") == 1
    assert page.value("kafka_controller_kafkacontroller_fencedbrokercount") == 1
    assert page.value("kafka_controller_kafkacontroller_activebrokercount") == 1


def test_a_scrape_opens_no_log(broker: Broker) -> None:
    """Ten thousand quiet partitions must stay quiet, whoever looks at them."""
    broker.add_topic("orders", partition(), partition())
    broker.touch("orders", 1, end=4)
    page = broker.page()
    assert broker.logs_opened == [("orders", 1)]
    assert page.labels("kafka_topic_partition_current_offset") == [{"topic": "orders", "partition": "1"}]
    assert page.value("kafka_topic_partition_leader", topic="orders", partition="0") == 1


def test_traffic_is_counted_by_topic_and_in_all(broker: Broker) -> None:
    broker.add_topic("orders")
    broker.add_topic("clicks")
    for topic, messages in (("orders", 3), ("clicks", 4)):
        counters = broker.partition(topic).counters
        counters.messages_in, counters.bytes_in, counters.bytes_out = messages, messages * 10, messages * 20
        counters.produce_requests, counters.fetch_requests = messages * 2, messages * 3
    broker.services.metrics.produce_errors = 5
    broker.services.metrics.bytes_rejected = 50
    page, prefix = broker.page(), "kafka_server_brokertopicmetrics_"
    for name, factor in {"messagesin": 1, "bytesin": 10, "bytesout": 20}.items():
        assert page.value(f"{prefix}{name}_total", topic="orders") == 3 * factor
        assert page.value(f"{prefix}{name}_total") == 7 * factor
        assert page.types[f"{prefix}{name}_total"] == "counter"
    assert page.value(f"{prefix}totalproducerequests_total") == 14
    assert page.value(f"{prefix}totalfetchrequests_total", topic="clicks") == 12
    assert page.value(f"{prefix}failedproducerequests_total") == 5
    assert page.value(f"{prefix}bytesrejected_total") == 50


def test_no_counter_goes_down_when_a_topic_is_deleted(broker: Broker) -> None:
    """Prometheus takes a lower count for a restart, and would show a burst of traffic that never was."""
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    broker.add_topic("orders")
    broker.add_topic("clicks")
    counters = broker.partition("orders").counters
    counters.messages_in, broker.partition("clicks").counters.messages_in = 3, 4
    assert broker.page().value(name) == 7
    counters.messages_in = 10
    broker.delete_topic("orders")
    for _ in range(2):
        page = broker.page()
        assert page.value(name) == 14
        assert page.labels(name) == [{"topic": "clicks"}, {}]


def test_requests_are_counted_by_the_name_of_their_api(broker: Broker) -> None:
    metrics = broker.services.metrics
    metrics.requests[0], metrics.requests[99], metrics.request_errors[0] = 7, 2, 1
    page = broker.page()
    assert page.value("kafka_network_requestmetrics_requests_total", request="Produce") == 7
    assert page.value("kafka_network_requestmetrics_requests_total", request="ApiKey99") == 2
    assert page.value("kafka_network_requestmetrics_errors_total", request="Produce") == 1
    assert page.types["kafka_network_requestmetrics_requests_total"] == "counter"


def test_connections_are_counted_by_listener(broker: Broker) -> None:
    broker.listeners.append(cast(Listener, SimpleNamespace(name="PLAINTEXT", connections={1, 2, 3})))
    broker.services.metrics.connections_open = 3
    page = broker.page()
    name = "kafka_server_socket_server_metrics_connection_count"
    assert page.value(name, listener="PLAINTEXT", networkProcessor="0") == 3
    assert page.value("ottla_connections_open") == 3


def test_a_failed_directory_is_seen(broker: Broker) -> None:
    good, bad = (SimpleNamespace(path=f"/disk-{n}", online=n == 1) for n in (1, 2))
    broker.add_topic("kept", partition(), partition())
    broker.add_topic("lost", partition(), partition(), partition())
    broker.add_topic("untouched")
    assert broker.page().value("kafka_server_replicamanager_offlinereplicacount") == 0
    directories: Any = broker.services.log_directories
    directories.online += [good, bad]
    directories.unopened["/disk-3"] = "no such device"
    broker.directory_by_topic.update(kept=good, lost=bad)
    page, name = broker.page(), "kafka_log_logmanager_logdirectoryoffline"
    assert page.value("kafka_log_logmanager_offlinelogdirectorycount") == 2
    assert [page.value(name, logDirectory=f"/disk-{n}") for n in (1, 2, 3)] == [0, 1, 1]
    assert page.value("kafka_server_replicamanager_offlinereplicacount") == 3


def test_fetch_sessions_are_counted(broker: Broker) -> None:
    session = broker.services.sessions.open(0.0)
    session.update("orders", [(0, -1, 0, -1, -1, 100), (1, -1, 0, -1, -1, 100)])
    assert broker.services.sessions.keeps(session)
    page, prefix = broker.page(), "kafka_server_fetchsessioncache_"
    assert page.value(f"{prefix}numincrementalfetchsessions") == 1
    assert page.value(f"{prefix}numincrementalfetchpartitionscached") == 2
    assert page.value(f"{prefix}incrementalfetchsessionevictions_total") == 0


def test_the_process_is_described(broker: Broker) -> None:
    page = broker.page()
    cpu, files, files_max = (page.value(f"process_{name}") for name in ("cpu_seconds_total", "open_fds", "max_fds"))
    assert cpu is not None
    assert cpu > 0
    assert files is not None
    assert files_max is not None
    assert 3 <= files <= files_max


def test_memory_and_start_of_the_process_are_known_where_there_is_proc(broker: Broker) -> None:
    page = broker.page()
    start, memory = page.value("process_start_time_seconds"), page.value("process_resident_memory_bytes")
    if start is None or memory is None:
        pytest.skip("this system has no /proc")
    now = broker.services.world.clock.now_ms() / 1000
    assert now - 24 * 3600 < start <= now + 1
    assert memory > 5_000_000


def test_clients_that_push_their_metrics_are_shown(broker: Broker) -> None:
    telemetry = broker.services.telemetry
    image = MetadataImage(configs={(ResourceType.CLIENT_METRICS, "all"): {"metrics": "*", "interval.ms": "1000"}})
    client = TelemetryClient(client_id='a "b"\\\n')
    instance, subscription = telemetry.ask(ZERO_UUID, client, image)
    push = Push(instance_id=instance, subscription_id=subscription.id, terminating=False, compression=4, size_bytes=123)
    telemetry.push(push, client, image, 1000)
    with pytest.raises(ApiError):
        telemetry.push(push, client, image, 1000)
    page, prefix = broker.page(), "ottla_client_telemetry_"
    assert page.value(f"{prefix}clients") == 1
    assert page.value(f"{prefix}pushes_total") == 1
    assert page.value(f"{prefix}bytes_total") == 123
    assert page.value(f"{prefix}refused_total", error="THROTTLING_QUOTA_EXCEEDED") == 1
    (labels,) = page.labels(f"{prefix}last_push_bytes")
    assert labels["client_id"] == 'a "b"\\\n'


def test_a_page_survives_what_happens_while_it_is_made(broker: Broker) -> None:
    """The loop turns between pieces, so topics come and go and logs are let go of in the middle of a page."""
    for number in range(300):
        broker.add_topic(f"topic-{number}", partition(), partition())
        broker.touch(f"topic-{number}", 1, end=1)
    pieces: list[str] = []
    for number, piece in enumerate(broker.exposition.render([])):
        pieces.append(piece)
        if number % 7 == 0 and number // 7 < 150:
            broker.delete_topic(f"topic-{number // 7}")
            broker.partition(f"topic-{200 + number // 14}", 1).log_or_none = None
            broker.add_topic(f"late-{number}")
    Page("".join(pieces))


def test_a_large_topic_comes_in_small_pieces(broker: Broker) -> None:
    broker.add_topic("wide", *[partition() for _ in range(5000)])
    lines = [piece.count("\n") for piece in broker.exposition.render([])]
    assert max(lines) <= 200
    assert sum(lines) > 5000 * 8


def test_any_text_makes_a_label() -> None:
    family = Family("a_total", "counter", "What\nis \\ this.")
    for text in ['quote " slash \\ line \n', "żółw", "\ud800", "\x00\x1b[31m", ""]:
        (parsed,) = text_string_to_metric_families(family.samples([((("label", text),), 1)]))
        assert parsed.samples[0].labels["label"] == text.encode("utf-8", "replace").decode()


def test_a_large_count_keeps_its_digits() -> None:
    assert Family("a_total", "counter", "A.").alone(2**63 + 1).endswith("a_total 9223372036854775809\n")


def test_every_name_is_one_that_prometheus_takes(broker: Broker) -> None:
    broker.add_topic("orders")
    broker.touch("orders")
    text = broker.text()
    for line in text.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ", "kafka_", "ottla_", "process_")), line
    types: dict[str, Any] = broker.page().types
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in types.items())
