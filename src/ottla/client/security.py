"""What Kafka's `security.protocol`, `ssl.*` and `sasl.*` keys ask for.

A key that this client cannot honour is refused, with what to do instead: a setting that protects something is never
left out in silence, and a connection is never less protected than was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.client.errors import UnsupportedSecurityError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
"""From old to new."""
_TLS_KEYS: Final = frozenset(
    f"ssl.{name}"
    for name in (
        "truststore.location",
        "truststore.type",
        "truststore.password",
        "truststore.certificates",
        "keystore.location",
        "keystore.type",
        "keystore.password",
        "keystore.key",
        "keystore.certificate.chain",
        "key.password",
        "endpoint.identification.algorithm",
        "enabled.protocols",
        "protocol",
    )
)
_SASL_KEYS: Final = frozenset(("sasl.mechanism", "sasl.jaas.config", "sasl.username", "sasl.password"))
_LOGIN: Final = re.compile(r"\s*[\w.$]+\s+(?:required|requisite|sufficient|optional)\b(.*);\s*", re.DOTALL)
_LOGIN_OPTION: Final = re.compile(r"""\s*([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))\s*""")


@dataclass(frozen=True, slots=True)
class Tls:
    """How to trust a broker, and with what to be trusted by it. Files and texts are PEM."""

    trusted_file: str = ""
    trusted: str = ""
    key_file: str = ""
    key: str = field(default="", repr=False)
    key_chain: str = ""
    key_password: str = field(default="", repr=False)
    check_host: bool = True
    oldest: str = TLS_VERSIONS[0]
    newest: str = TLS_VERSIONS[-1]


@dataclass(frozen=True, slots=True)
class Login:
    """Who to be, and how to prove it."""

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Security:
    """What a connection does before its first request."""

    tls: Tls | None = None
    login: Login | None = None


def read_security(protocol: str, options: Mapping[str, str]) -> Security:
    """What the keys ask for; UnsupportedSecurityError names the one that cannot be done. Opens no file."""
    if protocol not in PROTOCOLS:
        raise UnsupportedSecurityError(
            f"security.protocol: {protocol!r} is unknown; Kafka's protocols are {', '.join(PROTOCOLS)}"
        )
    return Security(
        _read_tls(options) if protocol.endswith("SSL") else None,
        _read_login(options) if protocol.startswith("SASL") else None,
    )


def _read_tls(options: Mapping[str, str]) -> Tls:
    for key in options:
        if key.startswith("ssl.") and key not in _TLS_KEYS:
            raise UnsupportedSecurityError(f"{key}: this client does not have it; leave it out, or use another key")
    for store in ("truststore", "keystore"):
        kind = options.get(f"ssl.{store}.type", "PEM")
        if kind.upper() != "PEM":
            raise UnsupportedSecurityError(
                f"ssl.{store}.type: {kind} is read by Java alone; {how_to_convert(store)}, and set the type to PEM"
            )
    algorithm = options.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("", "https"):
        raise UnsupportedSecurityError(
            f"ssl.endpoint.identification.algorithm: {algorithm!r} is neither https nor empty (which checks no name)"
        )
    oldest, newest = _read_versions(options)
    return Tls(
        trusted_file=options.get("ssl.truststore.location", ""),
        trusted=options.get("ssl.truststore.certificates", ""),
        key_file=options.get("ssl.keystore.location", ""),
        key=options.get("ssl.keystore.key", ""),
        key_chain=options.get("ssl.keystore.certificate.chain", ""),
        key_password=options.get("ssl.key.password", options.get("ssl.keystore.password", "")),
        check_host=algorithm == "https",
        oldest=oldest,
        newest=newest,
    )


def how_to_convert(store: str) -> str:
    """One line for whoever has a keystore of Java's."""
    if store == "truststore":
        return "write its certificates to a PEM file (keytool -exportcert -rfc -keystore FILE -alias NAME)"
    return "write its key and certificates to one PEM file (openssl pkcs12 -in FILE -nodes)"


def _read_versions(options: Mapping[str, str]) -> tuple[str, str]:
    """The oldest and the newest version of TLS."""
    given = options.get("ssl.enabled.protocols", ",".join(TLS_VERSIONS))
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in TLS_VERSIONS:
            raise UnsupportedSecurityError(f"ssl.enabled.protocols: {name} is not among {', '.join(TLS_VERSIONS)}")
    protocol = options.get("ssl.protocol", "TLS")
    if protocol not in ("TLS", *TLS_VERSIONS):
        raise UnsupportedSecurityError(f"ssl.protocol: {protocol} is not among TLS, {', '.join(TLS_VERSIONS)}")
    newest = TLS_VERSIONS[-1] if protocol == "TLS" else protocol
    enabled = [version for version in TLS_VERSIONS if version in names and version <= newest]
    if not enabled:
        raise UnsupportedSecurityError("ssl.enabled.protocols: with ssl.protocol no version of TLS is left")
    return enabled[0], enabled[-1]


def _read_login(options: Mapping[str, str]) -> Login:
    for key in options:
        if key.startswith("sasl.") and key not in _SASL_KEYS:
            raise UnsupportedSecurityError(f"{key}: this client does not have it; leave it out, or use another key")
    mechanism = options.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism not in MECHANISMS:
        default = "" if "sasl.mechanism" in options else ", Kafka's default,"
        raise UnsupportedSecurityError(
            f"sasl.mechanism: {mechanism}{default} is not spoken by this client; it has {', '.join(MECHANISMS)}"
        )
    given = _read_jaas(options["sasl.jaas.config"]) if "sasl.jaas.config" in options else {}
    username = given.get("username", options.get("sasl.username"))
    password = given.get("password", options.get("sasl.password"))
    if username is None or password is None:
        raise UnsupportedSecurityError(
            "sasl.jaas.config: username or password is missing; "
            'write org.apache.kafka.common.security.plain.PlainLoginModule required username="..." password="...";'
        )
    return Login(mechanism, username, password)


def _read_jaas(text: str) -> dict[str, str]:
    """The options of a login module, as Java writes them. What is wrong is told without the text, a password is in it.

    The module itself does not matter: the mechanism says what is done with name and password.
    """
    found = _LOGIN.fullmatch(text)
    options: dict[str, str] = {}
    rest = found.group(1) if found else "?"
    while rest.strip():
        option = _LOGIN_OPTION.match(rest)
        if option is None:
            raise UnsupportedSecurityError(
                'sasl.jaas.config: cannot be read; write MODULE required username="..." password="..."; with the '
                "semicolon at its end"
            )
        name, double, single, bare = option.groups()
        quoted = double if double is not None else single
        options[name] = bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        rest = rest[option.end() :]
    return options
