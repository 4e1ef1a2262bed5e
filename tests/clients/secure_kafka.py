"""Apache Kafka with a port for each way to be secure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from bench import processes
from bench.errors import NotMeasured
from bench.systems import CLUSTER_ID, JVM_OPTIONS, SETTINGS, Kafka, start_and_wait
from bench.tools import Tools, cache_directory, kafka_jars
from ottla.cli.free_ports import free_ports

USER, PASSWORD = "alice", 'a "quoted", =strange; one'
SESSION_MS = 3_000
"""How long a login lasts on the port EXPIRING."""
LISTENERS = {"PLAINTEXT": "PLAINTEXT", "TLS": "SSL", "MUTUAL": "SSL", "BOTH": "SASL_SSL", "LOGIN": "SASL_PLAINTEXT"}
LISTENERS |= {"EXPIRING": "SASL_PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
FORMAT_SECONDS_MAX = 60


@dataclass(frozen=True)
class SecureKafka:
    """Where it listens, and what a client needs for that."""

    ports: dict[str, int]
    trusted: Path
    key: Path

    def options(self, listener: str, mechanism: str = "PLAIN", password: str = PASSWORD) -> dict[str, str]:
        """Kafka's own keys for one of the ports."""
        given = {
            "bootstrap.servers": f"127.0.0.1:{self.ports[listener]}",
            "security.protocol": LISTENERS[listener],
            "ssl.truststore.location": str(self.trusted),
            "ssl.truststore.type": "PEM",
        }
        if listener == "MUTUAL":
            given |= {"ssl.keystore.location": str(self.key), "ssl.keystore.type": "PEM"}
        if LISTENERS[listener].startswith("SASL"):
            given |= {"sasl.mechanism": mechanism, "sasl.jaas.config": login_module(mechanism, password)}
        return given


def login_module(mechanism: str, password: str) -> str:
    name = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    quoted = password.replace('"', '\\"')
    return f'org.apache.kafka.common.security.{name} required username="{USER}" password="{quoted}";'


@contextmanager
def secure_kafka(home: Path) -> Iterator[SecureKafka]:
    """One that runs for as long as the block, or a skip where Kafka cannot be had."""
    try:
        tools = Tools(kafka_jars(cache_directory()), "", None, "")
    except NotMeasured as reason:
        pytest.skip(f"Apache Kafka cannot be had here: {reason}")
    home.mkdir()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(home / "ca.pem"))
    _write_key(authority.issue_cert("127.0.0.1"), home / "broker.pem")
    _write_key(authority.issue_cert("alice@example.org"), home / "client.pem")
    ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
    properties = home / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in _settings(home, ports).items()))
    users = [f"{mechanism}=[name={USER},password=pencil]" for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
    adding = [part for user in users for part in ("--add-scram", user)]
    format_it = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties), *adding)
    processes.run(tools.java(*format_it), FORMAT_SECONDS_MAX)
    command = tools.java("kafka.Kafka", str(properties), options=JVM_OPTIONS)
    broker = start_and_wait(Kafka(tools), command, home, ports["PLAINTEXT"])
    try:
        yield SecureKafka(ports, home / "ca.pem", home / "client.pem")
    finally:
        broker.stop()


def _write_key(issued: trustme.LeafCert, path: Path) -> None:
    """The key in the one form that Java reads."""
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    pems = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    path.write_bytes(b"".join([*pems, *(pem.bytes() for pem in issued.cert_chain_pems)]))


def _settings(home: Path, ports: dict[str, int]) -> dict[str, str]:
    listeners = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    given = SETTINGS | {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(each for each in listeners if not each.startswith("CONTROLLER")),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        "log.dirs": str(home / "data"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(home / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(home / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.expiring.plain.connections.max.reauth.ms": str(SESSION_MS),
    }
    quoted = PASSWORD.replace('"', '\\\\"')
    for name, protocol in LISTENERS.items():
        if protocol.startswith("SASL"):
            prefix = f"listener.name.{name.lower()}"
            given[f"{prefix}.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
            given[f"{prefix}.plain.sasl.jaas.config"] = (
                f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{quoted}";'
            )
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                given[f"{prefix}.{mechanism}.sasl.jaas.config"] = (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                )
    return given
