"""One socket to one broker.

Theory of operation. A broker answers the requests of a connection in the order in which it got them, so a connection
is a queue: `send` writes a request and returns a `Pending`, `receive` waits for that answer and, on the way, keeps
the answers to earlier requests for whoever asks for them. Several requests may thus be under way at once with no
thread. What is under way must stay small in one direction: a caller that sends megabytes while megabytes are owed to
it can make both ends wait for the other until the time-out ends it.

After a time-out or a broken socket the order is lost, so the connection closes itself and every later use of it raises.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.client.authentication import authenticate
from ottla.client.deadline import Deadline
from ottla.client.errors import (
    AuthenticationError,
    CannotConnectError,
    ClientError,
    ConnectionLostError,
    MalformedAnswerError,
    NotKafkaError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from ottla.client.security import Login, Tls
from ottla.client.settings import Address, ClientSettings
from ottla.model.errors import ErrorCode, MalformedMessageError
from ottla.wire.headers import API_VERSIONS_KEY, parse_response_header, request_header
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema import Message, decode, encode

if TYPE_CHECKING:
    from ottla.client.tls import TlsSocket

T = TypeVar("T")
R = TypeVar("R", bound=Message)

IN_FLIGHT_MAX: Final = 64
"""More requests than this under way is a mistake of the caller."""
SESSION_SHARE: Final = 0.8
"""How much of the time that a broker believes a login is used before it is made anew, on another connection."""
CLIENT_SOFTWARE_NAME: Final = "ottla"


class Pending(Generic[T]):
    """An answer that is owed. `Connection.receive` turns it into the answer."""

    __slots__ = ("_decode", "api_key", "body", "correlation_id", "overdue", "version")

    def __init__(
        self, api_key: int, version: int, correlation_id: int, decode: Callable[[memoryview], T], overdue: Deadline
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.body: memoryview | None = None
        self.overdue = overdue
        self._decode = decode

    def answer(self, body: memoryview) -> T:
        return self._decode(body)


class Connection:
    """A negotiated connection; made by `Connection.open`. Not for use by several threads."""

    __slots__ = (
        "_api_versions",
        "_broken",
        "_next_correlation_id",
        "_owed",
        "_session_end",
        "_settings",
        "_socket",
        "address",
        "features",
    )

    def __init__(self, address: Address, settings: ClientSettings, connected: socket.socket | TlsSocket) -> None:
        self.address = address
        self._settings = settings
        self._socket = connected
        self._session_end: Deadline | None = None
        self._owed: deque[Pending[object]] = deque()
        self._next_correlation_id = 0
        self._broken: ClientError | None = None
        self._api_versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, tuple[int, int]] = {}

    @classmethod
    def open(cls, address: Address, settings: ClientSettings) -> Connection:
        """Connect and agree on versions. CannotConnectError names the address and the reason."""
        security = settings.security()
        connected = _connect(address, settings.connect_timeout_ms)
        try:
            connection = cls(address, settings, _transport(connected, address, security.tls))
        except BaseException:
            connected.close()
            raise
        try:
            connection._negotiate()
            if security.login is not None:
                connection._log_in(security.login)
        except ConnectionLostError as error:
            # Also what a broker does that is killed just now, so it may be worth another attempt.
            raise CannotConnectError(
                f"{address} closed the connection at once: it is no Kafka broker, or its security.protocol is another"
            ) from error
        except RequestTimeoutError as error:
            raise CannotConnectError(
                f"{address} took the connection and said nothing for {settings.connect_timeout_ms} ms: "
                f"is it a Kafka broker? `ottla doctor` tells"
            ) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the socket; what was owed is lost. Closing twice is fine."""
        if self._broken is None:
            self._broken = ConnectionLostError(f"the connection to {self.address} is closed")
        self._owed.clear()
        self._socket.close()

    @property
    def in_flight(self) -> int:
        """Requests that were sent and whose answers have not come yet."""
        return len(self._owed)

    def usable(self) -> bool:
        """Whether a request may be sent; notices a broker that closed while nothing was under way."""
        if self._broken is not None:
            return False
        if self._owed:
            return True
        is_over = self._session_end is not None and self._session_end.passed()
        return not is_over and not self._readable(0)

    def supports(self, api_key: int) -> bool:
        """Whether the broker has the API at all."""
        return api_key in self._api_versions

    @property
    def api_versions(self) -> dict[int, tuple[int, int]]:
        """What the broker offers: API key to lowest and highest version."""
        return dict(self._api_versions)

    def version(self, api_key: int, name: str, lowest: int, highest: int) -> int:
        """The highest version that both ends speak."""
        offered = self._api_versions.get(api_key)
        if offered is None:
            raise UnsupportedVersionError(f"the broker at {self.address} does not support {name}")
        chosen = min(highest, offered[1])
        if chosen < max(lowest, offered[0]):
            raise UnsupportedVersionError(
                f"the broker at {self.address} speaks {name} {offered[0]} to {offered[1]}, "
                f"this client {lowest} to {highest}: upgrade the older of the two"
            )
        return chosen

    # Requests by message

    def version_of(self, request: type[Message]) -> int:
        """The version in which `send` will write this kind of request."""
        api_key, lowest, highest = _api(request)
        return self.version(api_key, request.__name__.removesuffix("Request"), lowest, highest)

    def send(self, request: Message, answer: type[R], *, version: int | None = None) -> Pending[R]:
        """Write the request; its answer comes from `receive`. Other requests may be sent in between."""
        kind = type(request)
        chosen = self.version_of(kind) if version is None else version
        return self.send_raw(_api(kind)[0], chosen, encode(request, chosen), lambda body: decode(answer, body, chosen))

    def call(self, request: Message, answer: type[R], *, timeout_ms: int | None = None) -> R:
        """One request and its answer."""
        return self.receive(self.send(request, answer), timeout_ms=timeout_ms)

    # Requests by bytes, for the APIs with codecs of their own

    def send_raw(self, api_key: int, version: int, body: bytes, decode: Callable[[memoryview], T]) -> Pending[T]:
        """Write a request whose body is encoded already; `decode` reads the body of its answer."""
        correlation_id = self._write(api_key, version, body)
        pending = Pending(api_key, version, correlation_id, decode, Deadline(self._settings.request_timeout_ms))
        self._owed.append(pending)  # type: ignore[arg-type]  # the queue does not care what an answer decodes to
        return pending

    def send_unanswered(self, api_key: int, version: int, body: bytes) -> None:
        """Write a request that the broker never answers: Produce with acks=0."""
        self._write(api_key, version, body)

    def receive(self, pending: Pending[T], *, timeout_ms: int | None = None) -> T:
        """The answer to `pending`. A time-out closes the connection, since the order of answers is lost."""
        deadline = Deadline(self._settings.request_timeout_ms if timeout_ms is None else timeout_ms)
        while pending.body is None:
            self._receive_next(deadline)
        body, pending.body = pending.body, None
        try:
            return pending.answer(body)
        except MalformedMessageError as error:
            self.close()
            raise MalformedAnswerError(f"the answer of {self.address} could not be read: {error}") from error

    def answered(self, pending: Pending[T], wait_ms: float = 0) -> bool:
        """Whether `receive` will not wait for long, be it for an answer or for an error.

        For callers that wait for several connections at once: an answer that is overdue breaks the connection.
        """
        if pending.body is not None or self._broken is not None or self._readable(wait_ms / 1000):
            return True
        if pending.overdue.passed():
            self._lost(TimeoutError())
        return self._broken is not None

    def fileno(self) -> int:
        """For `select` over several connections."""
        return self._socket.fileno()

    def _readable(self, wait_seconds: float) -> bool:
        connected = self._socket
        if isinstance(connected, socket.socket):
            return is_readable(connected, wait_seconds)
        return connected.readable(wait_seconds)

    def _write(self, api_key: int, version: int, body: bytes) -> int:
        if self._broken is not None:
            raise self._broken
        if len(self._owed) >= IN_FLIGHT_MAX:
            raise ValueError(f"{IN_FLIGHT_MAX} requests are under way on {self.address}: receive some of their answers")
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
        head = request_header(api_key, version, correlation_id, self._settings.client_id)
        size = (len(head) + len(body)).to_bytes(4, "big")
        try:
            self._socket.settimeout(self._settings.request_timeout_ms / 1000)
            self._socket.sendall(b"".join((size, head, body)))
        except OSError as error:
            raise self._lost(error) from error
        return correlation_id

    def _receive_next(self, deadline: Deadline) -> None:
        if self._broken is not None:
            raise self._broken
        if not self._owed:
            raise ValueError(f"no answer is owed by {self.address}")
        try:
            frame = self._read_frame(deadline)
        except KeyboardInterrupt:
            # Nobody knows how much of the answer was taken: whoever goes on after it gets an error, not a wait.
            self.close()
            raise
        pending = self._owed[0]
        try:
            correlation_id, position = parse_response_header(pending.api_key, pending.version, frame)
        except MalformedMessageError as error:
            self.close()
            raise MalformedAnswerError(f"the answer of {self.address} could not be read: {error}") from error
        if correlation_id != pending.correlation_id:
            self.close()
            raise MalformedAnswerError(
                f"{self.address} answered request {correlation_id} where {pending.correlation_id} was next"
            )
        pending.body = frame[position:]
        self._owed.popleft()

    def _read_frame(self, deadline: Deadline) -> memoryview:
        head = self._read_exactly(4, deadline)
        size = int.from_bytes(head, "big", signed=True)
        if not 4 <= size <= self._settings.answer_bytes_max:
            self.close()
            raise _not_an_answer(self.address, bytes(head))
        return self._read_exactly(size, deadline)

    def _read_exactly(self, size: int, deadline: Deadline) -> memoryview:
        view = memoryview(bytearray(size))
        filled = 0
        try:
            while filled < size:
                self._socket.settimeout(max(deadline.seconds_left(), 0.001))
                received = self._socket.recv_into(view[filled:])
                if not received:
                    raise ConnectionResetError("the broker closed it")
                filled += received
        except OSError as error:
            raise self._lost(error) from error
        return view

    def _lost(self, error: OSError) -> ClientError:
        lost: ClientError
        if isinstance(error, TimeoutError):
            lost = RequestTimeoutError(
                f"{self.address} did not answer in time: the broker may be overloaded or stopped; try again"
            )
        else:
            lost = ConnectionLostError(f"the connection to {self.address} was lost ({error.strerror or error})")
        self._broken = lost
        self.close()
        return lost

    # The first exchange

    def ask_versions(self) -> ApiVersionsResponse:
        """What the node supports and which features the cluster uses, as it is now."""
        highest = _api(ApiVersionsRequest)[2]
        answer = self._ask_versions(highest)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = {entry.api_key: entry.max_version for entry in answer.api_keys}
            answer = self._ask_versions(min(highest, offered.get(API_VERSIONS_KEY, 0)))
        if answer.error_code != ErrorCode.NONE:
            raise NotKafkaError(f"{self.address} refused to say what it supports (error {answer.error_code})")
        return answer

    def _negotiate(self) -> None:
        answer = self.ask_versions()
        self._api_versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
        self.features = {
            feature.name: (feature.min_version_level, feature.max_version_level)
            for feature in answer.finalized_features
        }

    def _log_in(self, login: Login) -> None:
        try:
            lifetime_ms = authenticate(self, login, self._settings.connect_timeout_ms)
        except (AuthenticationError, UnsupportedVersionError):
            self.close()
            raise
        if lifetime_ms > 0:
            self._session_end = Deadline(lifetime_ms * SESSION_SHARE)

    def _ask_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=_client_software_version()
        )
        pending = self.send_raw(
            API_VERSIONS_KEY, version, encode(request, version), lambda body: _decode_versions(body, version)
        )
        return self.receive(pending, timeout_ms=self._settings.connect_timeout_ms)


def _api(request: type[Message]) -> tuple[int, int, int]:
    """API key, lowest and highest version of a kind of request."""
    schema = request.__schema__
    if schema is None or schema.api_key is None:
        raise TypeError(f"{request.__name__} is no request")
    return schema.api_key, *schema.versions


def _decode_versions(body: memoryview, version: int) -> ApiVersionsResponse:
    """A broker that does not know the version answers in version 0, with an error code in front."""
    refused = body[:2] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    return decode(ApiVersionsResponse, body, 0 if refused else version)


def _client_software_version() -> str:
    from ottla import __version__

    return __version__


def _transport(connected: socket.socket, address: Address, tls: Tls | None) -> socket.socket | TlsSocket:
    if tls is None:
        return connected
    from ottla.client.tls import secure

    return secure(connected, address, tls)


def _connect(address: Address, timeout_ms: int) -> socket.socket:
    try:
        connected = socket.create_connection(address, timeout=timeout_ms / 1000)
    except socket.gaierror as error:
        raise CannotConnectError(
            f"cannot connect to {address}: the name {address.host!r} is not known here; check --bootstrap"
        ) from error
    except TimeoutError as error:
        raise CannotConnectError(
            f"cannot connect to {address}: no answer within {timeout_ms} ms; check the address and the firewall"
        ) from error
    except ConnectionRefusedError as error:
        raise CannotConnectError(
            f"cannot connect to {address}: nothing listens there; start a broker with `ottla serve`, "
            f"or check --bootstrap"
        ) from error
    except OSError as error:
        raise CannotConnectError(f"cannot connect to {address}: {error.strerror or error}") from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def is_readable(connected: socket.socket, wait_seconds: float) -> bool:
    """Whether the system has something to read from the socket, or will within that time."""
    poller = select.poll()
    poller.register(connected, select.POLLIN)
    return bool(poller.poll(wait_seconds * 1000))


def _not_an_answer(address: Address, head: bytes) -> ClientError:
    if head == b"HTTP":
        return NotKafkaError(f"{address} speaks HTTP, not Kafka's protocol: check the port")
    if head[:2] in (b"\x15\x03", b"\x16\x03"):
        return NotKafkaError(f"{address} speaks TLS: set security.protocol to SSL or SASL_SSL, or use another port")
    return NotKafkaError(f"{address} answered with something that is not Kafka's protocol: check the port")
