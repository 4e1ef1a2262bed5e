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
    """A broker, at the address it has registered; a new epoch says that it is another process.

    The end of a process may not be heard of: that of its host sends nothing. Who waited for its answers would do so
    until they are overdue, though the broker is back.
    """

    __slots__ = ("_broker_id", "_epoch", "_find")

    def __init__(self, broker_id: int, find: Callable[[int], tuple[Address, int] | None]) -> None:
        """`find` says the address and the epoch of a broker."""
        self._broker_id = broker_id
        self._find = find
        self._epoch = -1

    def right(self, address: Address) -> bool:
        return self._find(self._broker_id) == (address, self._epoch)

    def next(self) -> Address:
        found = self._find(self._broker_id)
        if found is None:
            raise PeerError(f"broker {self._broker_id}", "it is not registered with an inter-broker listener")
        address, self._epoch = found
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
