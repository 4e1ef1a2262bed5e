"""Where peers are to be found: at an address, as a broker, or as whoever is the controller now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from ottla.runtime.network import PeerError

Address: TypeAlias = tuple[str, int]


class Target(Protocol):
    """Where a peer is to be found; asked before every request, so cheap."""

    def right(self, address: Address) -> bool:
        """Whether a connection to this address is still one to the peer."""

    def next(self) -> Address:
        """Where to connect now; PeerError if that is not known."""


class FixedTarget:
    """An address that stays."""

    __slots__ = ("_address",)

    def __init__(self, address: Address) -> None:
        self._address = address

    def right(self, address: Address) -> bool:
        return True

    def next(self) -> Address:
        return self._address


class BrokerTarget:
    """A broker, at the address it has registered."""

    __slots__ = ("_address_of", "_broker_id")

    def __init__(self, broker_id: int, address_of: Callable[[int], Address | None]) -> None:
        self._broker_id = broker_id
        self._address_of = address_of

    def right(self, address: Address) -> bool:
        return self._address_of(self._broker_id) == address

    def next(self) -> Address:
        address = self._address_of(self._broker_id)
        if address is None:
            raise PeerError(f"broker {self._broker_id}", "it is not registered with an inter-broker listener")
        return address


class ControllerTarget:
    """The active controller; while nobody knows it, those who could be, one after the other."""

    __slots__ = ("_leader", "_turn", "_voters")

    def __init__(self, leader: Callable[[], Address | None], voters: Callable[[], Sequence[Address]]) -> None:
        self._leader = leader
        self._voters = voters
        self._turn = -1

    def right(self, address: Address) -> bool:
        leader = self._leader()
        return leader is None or leader == address

    def next(self) -> Address:
        leader = self._leader()
        if leader is not None:
            return leader
        voters = self._voters()
        if not voters:
            raise PeerError("controller", "no controller is known")
        self._turn = (self._turn + 1) % len(voters)
        return voters[self._turn]
