"""Client telemetry: what a client is asked to push, and what becomes of pushes that do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from uuid import UUID

import pytest

from ottla.core.controller.image import MetadataImage
from ottla.model.configs.definition import ResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import METADATA_TOPIC_ID, ZERO_UUID, uuid_to_base64
from ottla.runtime.telemetry import Push, Telemetry
from ottla.runtime.telemetry_subscriptions import ClientSubscription, TelemetryClient
from ottla.wire.compression import Codec

INTERVAL_MS = 10_000
BYTES_MAX = 1000
CLIENT = TelemetryClient(client_id="shop", source_address="10.0.0.7")


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 5.0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.ms)

    def monotonic(self) -> float:
        return self.ms / 1000


def subscriptions(**configs: dict[str, str]) -> MetadataImage:
    """An image with these CLIENT_METRICS configs, and others that are not meant."""
    return MetadataImage(
        configs={
            (ResourceType.TOPIC, "orders"): {"retention.ms": "1"},
            **{(ResourceType.CLIENT_METRICS, name): values for name, values in configs.items()},
        }
    )


def config(metrics: str = "org.apache.", interval_ms: int = INTERVAL_MS, match: str | None = None) -> dict[str, str]:
    values = {"metrics": metrics, "interval.ms": str(interval_ms)}
    return values if match is None else {**values, "match": match}


class Broker:
    """Telemetry with its clock and its image, and the steps of a client."""

    def __init__(self, instances_max: int = 100) -> None:
        self.clock = HandClock()
        ids: Iterator[int] = count(1000)
        self.telemetry = Telemetry(self.clock, lambda: UUID(int=next(ids)), instances_max)
        self.image = subscriptions(all=config())

    def ask(self, instance_id: UUID = ZERO_UUID, client: TelemetryClient = CLIENT) -> tuple[UUID, ClientSubscription]:
        return self.telemetry.ask(instance_id, client, self.image)

    def push(
        self,
        instance_id: UUID,
        subscription_id: int,
        *,
        terminating: bool = False,
        compression: int = Codec.ZSTD,
        size_bytes: int = 100,
    ) -> None:
        push = Push(
            instance_id=instance_id,
            subscription_id=subscription_id,
            terminating=terminating,
            compression=compression,
            size_bytes=size_bytes,
        )
        self.telemetry.push(push, CLIENT, self.image, BYTES_MAX)

    def refused(self, instance_id: UUID, subscription_id: int, **push: int) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            self.push(instance_id, subscription_id, **push)  # type: ignore[arg-type]
        return caught.value.code

    def refused_to_ask(self, instance_id: UUID) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            self.ask(instance_id)
        return caught.value.code

    def wait(self, ms: float = INTERVAL_MS) -> None:
        self.clock.ms += ms


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_client_is_given_an_id_and_told_what_to_push(broker: Broker) -> None:
    instance, subscription = broker.ask()
    other, _ = broker.ask()
    assert instance not in (ZERO_UUID, other)
    assert subscription.metrics == ("org.apache.",)
    assert subscription.interval_ms == INTERVAL_MS


def test_a_client_keeps_the_id_that_it_has(broker: Broker) -> None:
    instance, subscription = broker.ask()
    broker.wait()
    assert broker.ask(instance) == (instance, subscription)
    elsewhere = UUID(int=77)
    assert broker.ask(elsewhere)[0] == elsewhere


def test_nobody_is_asked_to_push_without_a_subscription(broker: Broker) -> None:
    broker.image = MetadataImage()
    _, subscription = broker.ask()
    assert subscription.metrics == ()
    assert subscription.interval_ms == 300_000


def test_subscriptions_add_up(broker: Broker) -> None:
    broker.image = subscriptions(
        one=config("a.,b."), two=config("b.,c.", interval_ms=500), none=config("d.", 100, "client_id=x")
    )
    _, subscription = broker.ask()
    assert subscription.metrics == ("a.", "b.", "c.")
    assert subscription.interval_ms == 500


def test_all_metrics_include_the_others(broker: Broker) -> None:
    broker.image = subscriptions(one=config("a."), two=config("*"))
    assert broker.ask()[1].metrics == ("*",)


def test_a_subscription_without_values_has_the_defaults(broker: Broker) -> None:
    broker.image = subscriptions(one={"metrics": "a."}, two={})
    _, subscription = broker.ask()
    assert subscription.metrics == ("a.",)
    assert subscription.interval_ms == 300_000


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("client_id=shop", True),
        ("client_id=sho", False),
        ("client_id=s.*p", True),
        ("client_id = shop , client_source_address = 10\\..*", True),
        ("client_id=shop,client_source_address=11.*", False),
        ("client_software_name=apache-kafka-java", False),
        (f"client_instance_id={uuid_to_base64(UUID(int=77))}", True),
        ("client_instance_id=.{21}", False),
    ],
)
def test_a_subscription_is_for_the_clients_that_match(broker: Broker, match: str, matches: bool) -> None:
    broker.image = subscriptions(one=config("a.", match=match))
    assert broker.ask(UUID(int=77))[1].metrics == (("a.",) if matches else ())


def test_everything_that_is_known_of_a_client_can_be_matched(broker: Broker) -> None:
    client = TelemetryClient(
        client_id="a", software_name="librdkafka", software_version="2.6", source_address="::1", source_port=99
    )
    names = ("client_software_name=lib.*", "client_software_version=2\\..*", "client_source_port=99", "client_id=a")
    broker.image = subscriptions(one=config("a.", match=",".join(names)))
    assert broker.ask(client=client)[1].metrics == ("a.",)


def test_a_name_that_is_too_long_is_not_kept(broker: Broker) -> None:
    """16,384 clients with names of 32 kB would be half a gigabyte."""
    broker.image = subscriptions(one=config("a.", match="client_id=.*"))
    assert broker.ask(client=TelemetryClient(client_id="x" * 256))[1].metrics == ("a.",)
    assert broker.ask(client=TelemetryClient(client_id="x" * 257))[1].metrics == ()
    assert broker.telemetry.instances()[-1].client.client_id is None


def test_a_stored_pattern_that_this_version_cannot_use_stops_nobody(broker: Broker) -> None:
    broker.image = subscriptions(
        bad=config("a.", match="client_id=("), worse={"interval.ms": "soon"}, good=config("b.")
    )
    assert broker.ask()[1].metrics == ("b.",)


def test_pushes_are_counted(broker: Broker) -> None:
    instance, subscription = broker.ask()
    broker.push(instance, subscription.id, size_bytes=10)
    broker.wait()
    broker.push(instance, subscription.id, size_bytes=30)
    (found,) = broker.telemetry.instances()
    assert (found.pushes, found.last_push_bytes) == (2, 30)
    assert found.last_push_ms == broker.clock.now_ms()
    assert (broker.telemetry.pushes, broker.telemetry.pushed_bytes) == (2, 40)


def test_a_client_may_not_push_before_its_time(broker: Broker) -> None:
    instance, subscription = broker.ask()
    # The first one comes when it likes: clients draw lots for it.
    broker.wait(INTERVAL_MS / 2)
    broker.push(instance, subscription.id)
    broker.wait(INTERVAL_MS - 1)
    assert broker.refused(instance, subscription.id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    broker.wait(1)
    broker.push(instance, subscription.id)
    assert broker.telemetry.refused == {ErrorCode.THROTTLING_QUOTA_EXCEEDED: 1}


def test_a_client_may_not_ask_before_its_time(broker: Broker) -> None:
    instance, _ = broker.ask()
    broker.wait(INTERVAL_MS - 1)
    assert broker.refused_to_ask(instance) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    broker.wait(1)
    broker.ask(instance)


def test_a_push_delays_the_next_question(broker: Broker) -> None:
    instance, subscription = broker.ask()
    broker.wait(INTERVAL_MS)
    broker.push(instance, subscription.id)
    broker.wait(INTERVAL_MS - 1)
    assert broker.refused_to_ask(instance) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_changed_subscription_is_learned_at_once(broker: Broker) -> None:
    instance, old = broker.ask()
    broker.push(instance, old.id)
    broker.image = subscriptions(all=config("other."))
    assert broker.refused(instance, old.id) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    _, new = broker.ask(instance)
    assert new.metrics == ("other.",)
    assert new.id != old.id
    broker.wait()
    broker.push(instance, new.id)
    assert broker.telemetry.instances()[0].pushes == 2


def test_other_configs_change_nothing(broker: Broker) -> None:
    instance, subscription = broker.ask()
    broker.push(instance, subscription.id)
    broker.image = MetadataImage(configs={**broker.image.configs, (ResourceType.TOPIC, "new"): {"retention.ms": "2"}})
    assert broker.refused(instance, subscription.id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_the_id_of_a_subscription_is_the_same_on_every_broker(broker: Broker) -> None:
    instance, subscription = broker.ask()
    other = Broker()
    other.push(instance, subscription.id)
    assert other.telemetry.pushes == 1
    other.wait()
    assert other.ask(instance)[1] == subscription


def test_the_id_of_a_subscription_tells_clients_and_subscriptions_apart(broker: Broker) -> None:
    found = set()
    for image in (subscriptions(a=config("a.")), subscriptions(a=config("b.")), subscriptions(a=config("a.", 1234))):
        broker.image = image
        found |= {broker.ask(UUID(int=number))[1].id for number in (1 << 100, 2 << 64, 3 << 32, 4)}
    assert len(found) == 12
    assert all(-(1 << 31) <= number < 1 << 31 for number in found)


def test_a_push_that_is_too_large_is_refused(broker: Broker) -> None:
    instance, subscription = broker.ask()
    assert broker.refused(instance, subscription.id, size_bytes=BYTES_MAX + 1) is ErrorCode.TELEMETRY_TOO_LARGE
    broker.wait()
    broker.push(instance, subscription.id, size_bytes=BYTES_MAX)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_of_the_protocol_is_taken(broker: Broker, codec: Codec) -> None:
    instance, subscription = broker.ask()
    broker.push(instance, subscription.id, compression=codec)


@pytest.mark.parametrize("codec", [5, -1, 127])
def test_an_unknown_codec_is_refused_and_the_client_may_ask_which_there_are(broker: Broker, codec: int) -> None:
    instance, subscription = broker.ask()
    assert broker.refused(instance, subscription.id, compression=codec) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    broker.ask(instance)
    assert broker.refused_to_ask(instance) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_client_that_ends_may_push_once_more_out_of_turn(broker: Broker) -> None:
    instance, subscription = broker.ask()
    broker.push(instance, subscription.id)
    broker.push(instance, subscription.id, terminating=True)
    broker.wait()
    assert broker.refused(instance, subscription.id) is ErrorCode.INVALID_REQUEST
    assert broker.telemetry.pushes == 2


@pytest.mark.parametrize("instance", [ZERO_UUID, METADATA_TOPIC_ID])
def test_a_push_needs_an_id(broker: Broker, instance: UUID) -> None:
    assert broker.refused(instance, 0) is ErrorCode.INVALID_REQUEST
    assert broker.telemetry.instances() == []


def test_clients_beyond_the_bound_push_out_the_one_that_was_silent_longest() -> None:
    broker = Broker(instances_max=3)
    ids = [broker.ask()[0] for _ in range(3)]
    broker.wait()
    broker.ask(ids[0])
    newest, _ = broker.ask()
    assert [found.id for found in broker.telemetry.instances()] == [ids[2], ids[0], newest]


def test_a_client_that_is_silent_for_three_intervals_is_forgotten(broker: Broker) -> None:
    instance, subscription = broker.ask()
    broker.push(instance, subscription.id)
    broker.wait(60_000)
    assert broker.telemetry.instances() != []
    broker.wait(1)
    assert broker.telemetry.instances() == []
    broker.push(instance, subscription.id)
    assert broker.telemetry.instances()[0].pushes == 1


def test_silent_clients_make_room_without_being_counted(broker: Broker) -> None:
    for _ in range(5):
        broker.ask()
    broker.wait(60_001)
    broker.ask()
    assert len(broker.telemetry._instances) == 1
