"""A cluster as a client sees it: which broker leads what, one connection to each, and retries.

Theory of operation. The first use asks any bootstrap address who the brokers are; from then on the brokers'
advertised addresses are used, and the bootstrap list only when none of those answers. What is known about a topic is
believed for `metadata_age_ms_max`, or until a broker cannot be reached, or until a broker says otherwise: whoever
sees one of `STALE_METADATA_CODES` calls `forget` and asks again. `retry` runs a whole attempt (look up, send,
receive, read the codes) again after an error that may pass.

An attempt that cannot reach anybody on a cluster that never answered is not repeated: the address is wrong or the
broker is down, and the user wants to know now. One that has answered before may come back, so attempts go on until
their time is over; meanwhile whoever wants to tell the user hears of each (`on_unreachable`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from ottla.client.connection import Connection
from ottla.client.deadline import Backoff, Deadline
from ottla.client.errors import (
    BrokerError,
    CannotConnectError,
    ClientError,
    ConnectionLostError,
    NotFoundError,
    NotKafkaError,
    RequestTimeoutError,
    broker_error,
)
from ottla.client.metadata import NO_LEADER, Broker, ClusterMetadata, TopicMetadata
from ottla.client.settings import Address, ClientSettings
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.schema import Message

T = TypeVar("T")
R = TypeVar("R", bound=Message)

AUTO_CREATE_MS_MAX: Final = 2_000
"""How long a broker may take to make a topic that somebody writes to."""


class Cluster:
    """Routes requests to the brokers that can answer them. Not for use by several threads; close it when done."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.metadata = ClusterMetadata()
        self._connections: dict[int, Connection] = {}
        self._waiting: dict[int, Connection] = {}
        self._bootstrap: Connection | None = None
        self.coordinators: dict[tuple[int, str], int] = {}
        """The broker of each kind and key that somebody asked for; kept by `Coordinators`."""
        self.on_unreachable: Callable[[ClientError], object] | None = None
        """Hears why nobody could be reached, though the cluster has answered before."""

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection. The cluster may be used again and then connects anew."""
        for connection in (*self._connections.values(), *self._waiting.values()):
            connection.close()
        self._connections.clear()
        self._waiting.clear()
        if self._bootstrap is not None:
            self._bootstrap.close()
            self._bootstrap = None

    # What is where

    def brokers(self) -> tuple[Broker, ...]:
        """Every live broker, by node id."""
        if not self.metadata.brokers:
            self.refresh(())
        return tuple(sorted(self.metadata.brokers.values()))

    def topic(self, name: str, *, auto_create: bool = False) -> TopicMetadata:
        """The topic's partitions and leaders; NotFoundError if there is no such topic."""
        known = self._fresh(name)
        if known is not None:
            return known
        backoff = Backoff(self.settings, Deadline(min(AUTO_CREATE_MS_MAX, self.settings.api_timeout_ms)))
        while True:
            try:
                return self.retry(lambda: self._ask_topic(name, auto_create))
            except NotFoundError:
                # A broker that makes the topic because we asked for it still says that it does not know it.
                if not auto_create or not backoff.wait():
                    raise

    def leader(self, partition: TopicPartition) -> Broker:
        """The broker that leads the partition; a retriable BrokerError while there is none."""
        topic = self.topic(partition.topic)
        entry = self.metadata.leader(partition)
        if entry is None:
            raise broker_error(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                str(partition),
                f"topic {topic.name!r} has partitions 0 to {len(topic.partitions) - 1}",
            )
        broker = self.metadata.brokers.get(entry.leader)
        if entry.leader == NO_LEADER or broker is None:
            self.metadata.forget(partition.topic)
            raise broker_error(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))
        return broker

    def leader_epoch(self, partition: TopicPartition) -> int:
        """The leader epoch that goes with `leader`, so that an old leader notices; -1 if not known."""
        entry = self.metadata.leader(partition)
        return -1 if entry is None else entry.leader_epoch

    def refresh(self, topics: Iterable[str] | None, *, auto_create: bool = False) -> None:
        """Ask for these topics (None: all of them) and for the brokers."""
        names = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=auto_create)
        answer = self.any_connection().call(request, MetadataResponse)
        self.metadata.take(answer, time.monotonic())

    def forget(self, topic: str) -> None:
        """Somebody found that what is known about the topic is old."""
        self.metadata.forget(topic)

    def _fresh(self, name: str) -> TopicMetadata | None:
        fetched_at = self.metadata.fetched_at.get(name)
        if fetched_at is None or (time.monotonic() - fetched_at) * 1000 > self.settings.metadata_age_ms_max:
            return None
        known = self.metadata.topics[name]
        return known if known.error is ErrorCode.NONE else None

    def _ask_topic(self, name: str, auto_create: bool) -> TopicMetadata:
        self.refresh((name,), auto_create=auto_create)
        found = self.metadata.topics.get(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error
        if found is None or code is not ErrorCode.NONE:
            self.metadata.forget(name)
            raise broker_error(code, f"topic {name!r}")
        return found

    # Connections

    def any_connection(self) -> Connection:
        """A connection to any broker: one that is open, else one that is known, else a bootstrap address."""
        for connection in self._connections.values():
            if connection.usable():
                return connection
        if self._bootstrap is not None and self._bootstrap.usable():
            return self._bootstrap
        known = list(self.metadata.brokers)
        random.shuffle(known)
        for node_id in known:
            try:
                return self.connection(node_id)
            except CannotConnectError:
                continue
        self._bootstrap = self._connect_bootstrap()
        return self._bootstrap

    def connection(self, node_id: int, *, waiting: bool = False) -> Connection:
        """The connection to one broker, opened if need be.

        A broker serves a connection in order, so a fetch that waits for records would hold up whatever is sent after
        it: such requests have a connection of their own (`waiting`).
        """
        connections = self._waiting if waiting else self._connections
        existing = connections.get(node_id)
        if existing is not None:
            if existing.usable():
                return existing
            existing.close()
            del connections[node_id]
        broker = self._broker(node_id)
        opened = None if waiting else self._take_bootstrap(broker.address)
        connections[node_id] = opened = opened or self._open_advertised(broker)
        return opened

    def controller(self) -> Connection:
        """The connection to the controller, or to the broker that stands in for it."""
        self.brokers()
        controller_id = self.metadata.controller_id
        return self.connection(controller_id) if controller_id in self.metadata.brokers else self.any_connection()

    def leader_connection(self, partition: TopicPartition, *, waiting: bool = False) -> Connection:
        """The connection to the partition's leader."""
        return self.connection(self.leader(partition).node_id, waiting=waiting)

    def _broker(self, node_id: int) -> Broker:
        if node_id not in self.metadata.brokers:
            self.refresh(())
        broker = self.metadata.brokers.get(node_id)
        if broker is None:
            raise broker_error(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id}", "the cluster has no such broker at the moment"
            )
        return broker

    def _open_advertised(self, broker: Broker) -> Connection:
        try:
            return Connection.open(broker.address, self.settings)
        except CannotConnectError as error:
            self.metadata.forget_all()  # what it led is led by another now, or soon
            if broker.address in self.settings.bootstrap:
                raise
            raise CannotConnectError(
                f"broker {broker.node_id} advertises {broker.address}, which this machine cannot reach: set its "
                f"advertised.listeners to an address that clients can use, or run `ottla doctor` ({error})"
            ) from error

    def _take_bootstrap(self, address: Address) -> Connection | None:
        """The bootstrap connection serves for its broker too, once that is known to be at the same address."""
        bootstrap = self._bootstrap
        if bootstrap is None or bootstrap.address != address or not bootstrap.usable():
            return None
        self._bootstrap = None
        return bootstrap

    def _connect_bootstrap(self) -> Connection:
        failures: list[ClientError] = []
        for address in self.settings.bootstrap:
            try:
                return Connection.open(address, self.settings)
            except (CannotConnectError, RequestTimeoutError) as error:
                failures.append(error)
        failure = failures[0] if len(failures) == 1 else _joined(failures)
        if self.metadata.brokers and self.on_unreachable is not None:
            self.on_unreachable(failure)
        raise failure

    # Retries

    def retry(self, attempt: Callable[[], T], *, repeatable: bool = True, deadline: Deadline | None = None) -> T:
        """Run `attempt` until it succeeds, fails for good, or the time for one call is over.

        `repeatable` is False for what must not happen twice: then a connection that breaks after the request was sent
        ends the call, since nobody knows whether the broker did it.
        """
        backoff = Backoff(self.settings, deadline)
        while True:
            try:
                return attempt()
            except ClientError as error:
                if not self._worth_another(error, repeatable) or not backoff.wait():
                    raise
                self._unlearn(error)

    def call_any(self, request: Message, answer: type[R]) -> R:
        """Ask any broker, with retries. Codes inside the answer are the caller's."""
        return self.retry(lambda: self.any_connection().call(request, answer))

    def _worth_another(self, error: ClientError, repeatable: bool) -> bool:
        if isinstance(error, CannotConnectError):
            return error.retriable and bool(self.metadata.brokers)
        if isinstance(error, ConnectionLostError | RequestTimeoutError):
            return repeatable
        return error.retriable

    def _unlearn(self, error: ClientError) -> None:
        """Before another attempt: ask anew who the controller is, and where the brokers are."""
        if isinstance(error, CannotConnectError) or (
            isinstance(error, BrokerError) and error.code is ErrorCode.NOT_CONTROLLER
        ):
            try:
                self.refresh(())
            except ClientError:
                return  # the attempt itself will find out, and say so


def _joined(failures: list[ClientError]) -> ClientError:
    kind = NotKafkaError if all(isinstance(error, NotKafkaError) for error in failures) else CannotConnectError
    return kind("none of the bootstrap addresses can be used: " + "; ".join(str(error) for error in failures))
