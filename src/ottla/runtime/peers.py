"""Requests to other nodes.

Theory of operation. A `Peer` is a place to ask: its connection is made at the first request, and made anew at the first
one after a failure, at the address that is right by then. A connection first asks for the versions that the other side
serves. Requests are pipelined: answers come in the order of the requests, so one that never comes holds up all behind
it. Therefore what may wait long goes over a lane of its own, and a request that is not answered in time ends its
connection, and with it the requests behind it.

Every failure is a PeerError, and says nothing about whether the request was carried out: whoever repeats a request must
know that it may come twice. Nothing here waits before it tries again; callers do, with `world.rng`.

What an editor must keep true: a link that failed is never used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from ottla import __version__
from ottla.model.errors import ErrorCode, MalformedMessageError
from ottla.runtime.absences import Absences
from ottla.runtime.network import Network, PeerError
from ottla.runtime.peer_link import Link, Reply, again
from ottla.runtime.peer_targets import Address, BrokerTarget, ControllerTarget, FixedTarget, Target
from ottla.wire.headers import API_VERSIONS_KEY
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema import Message, decode, encode

if TYPE_CHECKING:
    from ottla.core.controller.image import MetadataImage

NEGOTIATION_TIMEOUT_MS: Final = 5000
API_VERSIONS_ASKED: Final = 3
ELSEWHERE: Final = "the peer is elsewhere now, or was started anew"

R = TypeVar("R", bound=Message)


class Peer:
    """Another node, over one lane."""

    __slots__ = (
        "_client_id",
        "_closed",
        "_connecting",
        "_dialled",
        "_link",
        "_network",
        "_on_lost",
        "_target",
    )

    def __init__(
        self, network: Network, target: Target, client_id: str, on_lost: Callable[[], None] | None = None
    ) -> None:
        """`on_lost` is called when the other side has closed a connection."""
        self._on_lost = on_lost
        self._network = network
        self._target = target
        self._client_id = client_id
        self._link: Link | None = None
        self._connecting: asyncio.Task[Link] | None = None
        self._dialled: Address | None = None
        self._closed = False

    async def request(self, message: Message, response: type[R], *, timeout_ms: int, version_min: int = 0) -> R:
        """The answer to a request, in the newest version that both sides know. PeerError on every failure."""
        schema = type(message).__schema__
        if schema is None or schema.api_key is None:
            raise TypeError(f"{type(message).__name__} is no request")
        first, last = schema.versions
        version, body = await self.request_raw(
            schema.api_key,
            last,
            lambda version: encode(message, version),
            timeout_ms=timeout_ms,
            version_min=max(first, version_min),
        )
        try:
            return decode(response, body, version)
        except MalformedMessageError as error:
            name = self.address_name()
            self.reset(f"its answer could not be read: {error}")
            raise PeerError(name, f"its answer to {type(message).__name__} could not be read: {error}") from error

    async def request_raw(
        self,
        api_key: int,
        version_max: int,
        body: Callable[[int], bytes],
        *,
        timeout_ms: int,
        version_min: int = 0,
        reply: Reply | None = None,
    ) -> tuple[int, memoryview]:
        """The version that was used, and the body of the answer in it: a copy that may be kept.

        With `reply` it is the answer that ended the conversation. Each question in it may take `timeout_ms`.
        """
        link = self._usable_link()
        if link is None or not link.has_room:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    link = await self._link_with_room()
            except TimeoutError:
                raise PeerError(self.address_name(), f"no answer within {timeout_ms} ms") from None
        version = _common_version(link, api_key, version_min, version_max)
        return version, await link.send(api_key, version, body(version), timeout_ms, reply)

    async def _link_with_room(self) -> Link:
        while True:
            link = self._usable_link() or await self._connected()
            if link.has_room:
                return link
            await link.room()
            if link.failure is None:
                return link

    def reset(self, reason: str) -> None:
        """Leave the present connection; the next request makes another one, where the target says."""
        link, self._link = self._link, None
        if link is not None:
            link.fail(reason)

    def follow(self) -> None:
        """Leave a connection to where the peer no longer is; whoever waits there gets a PeerError."""
        self._usable_link()
        if self._connecting is not None and self._dialled is not None and not self._target.right(self._dialled):
            self._connecting.cancel()

    def close(self) -> None:
        """For good; whoever waits gets a PeerError."""
        self._closed = True
        self.reset("closed")
        if self._connecting is not None:
            self._connecting.cancel()

    def address_name(self) -> str:
        if self._link is not None:
            return self._link.name
        return "a peer" if self._dialled is None else f"{self._dialled[0]}:{self._dialled[1]}"

    def _usable_link(self) -> Link | None:
        link = self._link
        if link is None or link.failure is not None:
            return None
        if not self._target.right(link.address):
            self.reset(ELSEWHERE)
            return None
        return link

    async def _connected(self) -> Link:
        """A link, by the connection attempt that is under way or by a new one."""
        if self._closed:
            raise PeerError(self.address_name(), "closed")
        attempt = self._connecting
        if attempt is None:
            self._connecting = attempt = asyncio.get_running_loop().create_task(self._connect())
            attempt.add_done_callback(self._attempt_ended)
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if attempt.cancelled() and waiter is not None and not waiter.cancelling():
                raise PeerError(self.address_name(), self._left_because()) from None
            raise
        except PeerError as error:
            raise again(error) from None

    def _left_because(self) -> str:
        return "closed" if self._closed else ELSEWHERE

    def _attempt_ended(self, attempt: asyncio.Task[Link]) -> None:
        if self._connecting is attempt:
            self._connecting = None
        if not attempt.cancelled():
            attempt.exception()  # Looked at, even if nobody waits any more.

    async def _connect(self) -> Link:
        self._dialled = address = self._target.next()
        link = Link(address, self._client_id, self._on_lost)
        try:
            link.opened(await self._network.connect(*address, link))
            async with asyncio.timeout(NEGOTIATION_TIMEOUT_MS / 1000):
                link.versions = await _ask_versions(link)
        except TimeoutError:
            link.fail(f"no answer within {NEGOTIATION_TIMEOUT_MS} ms")
            raise PeerError(link.name, f"no answer within {NEGOTIATION_TIMEOUT_MS} ms") from None
        except BaseException:
            link.fail("not connected")
            raise
        if link.failure is not None:
            raise again(link.failure)
        self._link = link
        return link


async def _ask_versions(link: Link) -> dict[int, tuple[int, int]]:
    """What the other side serves. One that does not know our question says in version 0 which one it knows."""
    answer = await _ask_versions_in(link, API_VERSIONS_ASKED)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        offered = {entry.api_key: entry.max_version for entry in answer.api_keys}
        answer = await _ask_versions_in(link, min(API_VERSIONS_ASKED, offered.get(API_VERSIONS_KEY, 0)))
    if answer.error_code != ErrorCode.NONE:
        raise PeerError(link.name, f"it does not say what it serves (error {answer.error_code})")
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}


async def _ask_versions_in(link: Link, version: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
    body = await link.send(API_VERSIONS_KEY, version, encode(request, version), NEGOTIATION_TIMEOUT_MS)
    refused = body[:2] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    try:
        return decode(ApiVersionsResponse, body, 0 if refused else version)
    except MalformedMessageError as error:
        raise PeerError(link.name, f"its answer could not be read: {error}") from error


def _common_version(link: Link, api_key: int, version_min: int, version_max: int) -> int:
    theirs = link.versions.get(api_key)
    if theirs is None:
        raise PeerError(link.name, f"it does not serve the API with key {api_key}")
    version = min(version_max, theirs[1])
    if version < max(version_min, theirs[0]):
        raise PeerError(
            link.name,
            f"it serves the API with key {api_key} in versions {theirs[0]} to {theirs[1]}, "
            f"this node knows {version_min} to {version_max}",
        )
    return version


class Peers:
    """All that this node asks others, one connection per target and lane."""

    __slots__ = (
        "_client_id",
        "_closed",
        "_image",
        "_leader",
        "_listener_name",
        "_network",
        "_peers",
        "_voters",
        "absences",
    )

    def __init__(
        self,
        network: Network,
        *,
        client_id: str,
        image: Callable[[], MetadataImage],
        listener_name: Callable[[], str],
        leader: Callable[[], Address | None],
        voters: Callable[[], Sequence[Address]],
    ) -> None:
        """`listener_name` is what inter.broker.listener.name says; `leader` is the quorum's `address_of_leader`."""
        self._network = network
        self._client_id = client_id
        self._image = image
        self._listener_name = listener_name
        self._leader = leader
        self._voters = voters
        self._closed = False
        self._peers: dict[tuple[str, object, str], Peer] = {}
        self.absences = Absences(network, image, self._address_of_broker)

    def to_broker(self, broker_id: int, lane: str) -> Peer:
        return self._peer(
            "broker",
            broker_id,
            lane,
            lambda: BrokerTarget(broker_id, self._find_broker),
            lambda: self.absences.connection_lost(broker_id),
        )

    def to_controller(self, lane: str) -> Peer:
        return self._peer("controller", None, lane, lambda: ControllerTarget(self._leader, self._voters))

    def to_address(self, host: str, port: int, lane: str) -> Peer:
        return self._peer("address", (host, port), lane, lambda: FixedTarget((host, port)))

    def _address_of_broker(self, broker_id: int) -> Address | None:
        found = self._find_broker(broker_id)
        return None if found is None else found[0]

    def _find_broker(self, broker_id: int) -> tuple[Address, int] | None:
        """Where other brokers find this one, and its epoch; None if it is not registered."""
        broker = self._image().brokers.get(broker_id)
        if broker is None:
            return None
        name = self._listener_name()
        for endpoint in broker.endpoints:
            if endpoint.name == name:
                return (endpoint.host, endpoint.port), broker.epoch
        return None

    def brokers_changed(self, image: MetadataImage) -> None:
        """The metadata says something else about brokers: nobody waits for one that has moved, or was started anew."""
        self.absences.brokers_changed(image)
        for (kind, _, _), peer in self._peers.items():
            if kind == "broker":
                peer.follow()

    def controller_changed(self) -> None:
        """Another node leads the quorum: nobody waits for the old one any more."""
        for (kind, _, _), peer in self._peers.items():
            if kind == "controller":
                peer.follow()

    def close(self) -> None:
        """For good; whoever waits, or asks later, gets a PeerError."""
        self._closed = True
        self.absences.close()
        for peer in self._peers.values():
            peer.close()

    def _peer(
        self,
        kind: str,
        target: object,
        lane: str,
        make: Callable[[], Target],
        on_lost: Callable[[], None] | None = None,
    ) -> Peer:
        key = (kind, target, lane)
        peer = self._peers.get(key)
        if peer is None:
            self._peers[key] = peer = Peer(self._network, make(), self._client_id, on_lost)
            if self._closed:
                peer.close()
        return peer
