"""Why a client cannot connect, told by the step that fails."""

from __future__ import annotations

import contextlib
import http.server
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from ottla.cli.doctor_network import check_address, check_cluster
from ottla.cli.finding import Finding, Health
from ottla.cli.free_ports import free_port
from ottla.client.cluster import Cluster
from ottla.client.settings import Address, ClientSettings
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from ottla.wire.schema import encode
from tests.unit.client.scripted_broker import METADATA, NODE_ID, ScriptedBroker

QUICK = ClientSettings(connect_timeout_ms=500, request_timeout_ms=500, api_timeout_ms=500)


def last(address: Address, settings: ClientSettings = QUICK) -> Finding:
    return list(check_address(address, settings))[-1]


@contextmanager
def http_server() -> Iterator[Address]:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield Address("127.0.0.1", server.server_address[1])
        server.shutdown()
        thread.join(5)


def test_a_name_that_nobody_knows() -> None:
    finding = last(Address("nowhere.invalid", 9092))
    assert (finding.health, finding.check) == (Health.FAIL, "name")


def test_nothing_listens() -> None:
    address = Address("127.0.0.1", free_port())
    finding = last(address)
    assert finding.health is Health.FAIL
    assert f"ottla serve --port {address.port}" in finding.advice


@pytest.mark.skipif(sys.platform != "linux", reason="who listens is read from /proc")
def test_a_broker_that_listens_elsewhere_on_this_machine() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.2", port)):
        finding = last(Address("127.0.0.1", port))
    assert finding.health is Health.FAIL
    assert "--host" in finding.advice


def test_a_web_server_on_the_port() -> None:
    with http_server() as address:
        finding = last(address)
    assert (finding.health, finding.check) == (Health.FAIL, "protocol")
    assert "HTTP" in finding.seen


def test_a_broker_is_recognised() -> None:
    with ScriptedBroker() as broker:
        broker.offered |= {1: (4, 17), 2: (1, 10)}
        finding = last(Address("127.0.0.1", broker.port))
    assert (finding.health, finding.check) == (Health.OK, "protocol")


def test_a_controller_is_no_broker() -> None:
    with ScriptedBroker() as broker:
        finding = last(Address("127.0.0.1", broker.port))
    assert finding.health is Health.FAIL
    assert "controller" in finding.advice


def test_an_advertised_address_that_leads_nowhere() -> None:
    with ScriptedBroker() as broker:
        elsewhere = MetadataResponseBroker(node_id=NODE_ID, host="127.0.0.1", port=free_port())
        answer = MetadataResponse(brokers=[elsewhere], topics=[])
        broker.answers[METADATA] = lambda version, frame, position: encode(answer, version)
        settings = replace(QUICK, bootstrap=(Address("127.0.0.1", broker.port),))
        with Cluster(settings) as cluster:
            findings = {finding.check: finding for finding in check_cluster(cluster)}
    assert findings["advertised address"].health is Health.FAIL
    assert "advertised.listeners" in findings["advertised address"].advice


def test_a_port_that_takes_connections_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    held.append(listener.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        finding = last(Address("127.0.0.1", listener.getsockname()[1]))
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        for connection in held:
            connection.close()
    assert finding.health is Health.FAIL
    assert "says nothing" in finding.seen
    assert "ottla doctor" not in finding.line()


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.doctor_network.PROBE_SECONDS", 0.3)
