"""A call reaches the coordinator wherever it is, waits while there is none, and not for ever."""

from __future__ import annotations

import time

import pytest

from ottla.client.cluster import Cluster
from ottla.client.coordinators import CoordinatorKind, Coordinators
from ottla.client.errors import BrokerError, UnsupportedVersionError, broker_error
from ottla.model.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.unit.client.scripted_broker import NODE_ID, ScriptedBroker
from tests.unit.client.scripted_coordinator import ScriptedCoordinator


def test_a_coordinator_is_asked_for_once() -> None:
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        coordinators = Coordinators(cluster, CoordinatorKind.TRANSACTION)
        assert [coordinators.node_id("t") for _ in range(2)] == [NODE_ID, NODE_ID]
        (asked,) = broker.asked(FindCoordinatorRequest)
        assert (asked.key_type, list(asked.coordinator_keys)) == (1, ["t"])


def test_an_old_broker_is_asked_for_one_key() -> None:
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        broker.offered[10] = (0, 3)
        assert Coordinators(cluster, CoordinatorKind.GROUP).node_id("g") == NODE_ID
        assert broker.asked(FindCoordinatorRequest)[0].key == "g"


def test_a_call_waits_while_there_is_no_coordinator() -> None:
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        broker.find_codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert Coordinators(cluster, CoordinatorKind.GROUP).call("g", lambda _: "done") == "done"
        assert len(broker.asked(FindCoordinatorRequest)) == 3


def test_a_coordinator_that_has_moved_is_looked_for_again() -> None:
    codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]

    def attempt(_: object) -> str:
        if codes:
            raise broker_error(codes.pop(0), "moved")
        return "done"

    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        assert Coordinators(cluster, CoordinatorKind.GROUP).call("g", attempt) == "done"
        assert len(broker.asked(FindCoordinatorRequest)) == 3


def test_what_will_not_pass_is_said_at_once() -> None:
    def attempt(_: object) -> None:
        raise broker_error(ErrorCode.INVALID_GROUP_ID, "no")

    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        coordinators = Coordinators(cluster, CoordinatorKind.GROUP)
        with pytest.raises(BrokerError, match="INVALID_GROUP_ID"):
            coordinators.call("g", attempt)
        coordinators.node_id("g")
        assert len(broker.asked(FindCoordinatorRequest)) == 1


def test_the_wait_has_an_end() -> None:
    with ScriptedCoordinator() as broker, Cluster(broker.settings(api_timeout_ms=200)) as cluster:
        broker.find_codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1_000
        started = time.monotonic()
        with pytest.raises(BrokerError, match="COORDINATOR_NOT_AVAILABLE"):
            Coordinators(cluster, CoordinatorKind.GROUP).call("g", lambda _: None)
        assert time.monotonic() - started < 2


def test_a_broker_without_coordinators_is_named() -> None:
    with (
        ScriptedBroker() as broker,
        Cluster(broker.settings()) as cluster,
        pytest.raises(UnsupportedVersionError, match="FindCoordinator"),
    ):
        Coordinators(cluster, CoordinatorKind.GROUP).call("g", lambda _: None)
