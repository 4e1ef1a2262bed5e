"""A short chaos run, and the gaps that clients see when a broker goes. `make chaos` runs longer."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import warnings
from pathlib import Path

import pytest
from confluent_kafka import Producer

from chaos.cluster import Cluster
from chaos.copies import check_copies
from chaos.faults import CLOCK_STEP_MS, KINDS, plan
from chaos.gaps import KILL_SECONDS_MAX, GapMeasurement
from chaos.links import Links
from chaos.recording import Clock, Recording
from chaos.run import ChaosRun
from chaos.waiting import until
from ottla.cli.free_ports import free_ports
from simulator.findings import Findings
from simulator.history import Place

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="who calls a proxy is asked of Linux")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_nothing_is_lost_under_faults(tmp_path: Path) -> None:
    said: list[str] = []
    result = ChaosRun(7, 20, tmp_path, said.append, faults_min=3).run()
    story = "\n".join([*said, *map(str, result.findings)])
    assert not result.findings, story
    assert result.acknowledged > 1000, story
    assert result.transactions > 10, story
    assert result.copied > 100, story
    assert len(result.faults) >= 3, story


@pytest.mark.slow
def test_a_leader_that_is_killed_or_restarted_is_hardly_missed(tmp_path: Path) -> None:
    kills, restarts = GapMeasurement(tmp_path).measure([1])
    assert max(kills) < KILL_SECONDS_MAX, kills
    # On a machine that does nothing else at most 0.3 s; tests share theirs.
    assert max(restarts) < 1.0, restarts


def test_a_link_that_is_cut_carries_nothing_until_it_heals() -> None:
    own_port, proxy_port = free_ports(2)
    links = Links({1: (own_port, proxy_port)}, lambda: {2: os.getpid()})
    try:
        with socket.create_server(("127.0.0.1", own_port)) as server:
            links.listen(1)
            # The proxy looks whether the node listens before it does so itself.
            server.accept()[0].close()
            server.settimeout(10)
            with connected(proxy_port) as client, server.accept()[0] as node:
                client.sendall(b"a")
                assert node.recv(1) == b"a"
                links.cut(2, 1)
                client.sendall(b"b")
                node.sendall(b"c")
                assert client.recv(1) == b"c", "the other direction is open"
                node.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    node.recv(1)
                links.heal()
                node.settimeout(10)
                assert node.recv(1) == b"b"
                links.reset(1)
                with pytest.raises(ConnectionError):
                    node.recv(1)
    finally:
        links.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_links_that_are_closed_in_the_middle_of_anything_leave_nothing_open() -> None:
    gc.collect()  # What others left is not looked for here.
    own_port, proxy_port = free_ports(2)
    links = Links({1: (own_port, proxy_port)}, lambda: {2: os.getpid()})
    with contextlib.ExitStack() as clients, socket.create_server(("127.0.0.1", own_port)) as server:
        links.listen(1)
        server.accept()[0].close()
        through = clients.enter_context(connected(proxy_port))
        with server.accept()[0]:
            links.cut(2, 1)
            for _ in range(20):
                clients.enter_context(connected(proxy_port))
            links.close()
        with pytest.raises(ConnectionError):
            through.recv(1)
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always")
        gc.collect()
    assert not left_open, [str(w.message) for w in left_open]


@pytest.mark.slow
def test_the_clock_of_a_broker_can_be_set(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, links=False, config={"log.message.timestamp.type": "LogAppendTime"})
    try:
        cluster.start()
        cluster.create_topic("orders", 1)
        stamps: list[int] = []
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for shift_ms in (0, CLOCK_STEP_MS, -CLOCK_STEP_MS, 0):
            for node in cluster.nodes.values():
                node.set_clock(shift_ms)
            producer.produce("orders", b"x", on_delivery=lambda _, message: stamps.append(message.timestamp()[1]))
            assert producer.flush(20) == 0
        first, *others = stamps
        hours = [round((stamp - first) / CLOCK_STEP_MS) for stamp in others]
        assert hours == [1, -1, 0]
    finally:
        cluster.close()


def connected(port: int) -> socket.socket:
    client = socket.socket()
    client.settimeout(10)
    until(lambda: client.connect_ex(("127.0.0.1", port)) == 0, "the proxy listens", 10)
    return client


def test_a_record_that_is_copied_twice_or_not_at_all_is_found() -> None:
    recording = Recording(Clock())
    findings = Findings(lambda: 0)
    orders, copies = Place("orders", 0), Place("copies", 0)
    for value in range(3):
        recording.send(orders, "producer", value)
    recording.final[orders, True] = [(0, 0), (1, 1), (2, 2)]
    recording.copied_from = {10: (orders, 0), 11: (orders, 0), 12: (orders, 7)}
    recording.final[copies, True] = [(0, 10), (1, 11), (2, 12)]
    recording.copied_to = {orders: 2}
    check_copies(recording, findings)
    assert [finding.rule for finding in findings.found] == ["copied twice", "not copied", "copied from nothing"]


def test_a_plan_has_every_kind_before_one_comes_again() -> None:
    faults = plan(7, 3, 60)
    assert {fault.kind for fault in faults[: len(KINDS)]} == set(KINDS)
    assert [str(fault) for fault in faults] == [str(fault) for fault in plan(7, 3, 60)]
    assert all(len(set(fault.nodes)) == KINDS[fault.kind].nodes for fault in faults)
