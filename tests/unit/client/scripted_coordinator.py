"""A scripted broker that also answers what coordinators answer, message by message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.schema import Message, decode, encode
from tests.unit.client.scripted_broker import NODE_ID, ScriptedBroker

Q = TypeVar("Q", bound=Message)
Script = Callable[[Q], Message | None]


class ScriptedCoordinator(ScriptedBroker):
    """Coordinates everything. `on` says how a kind of request is answered; what came in is in `requests`."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(partitions)
        self.requests: list[Message] = []
        self.find_codes: list[int] = []
        """Codes with which FindCoordinator refuses before it answers."""
        self.on(FindCoordinatorRequest, self._find)

    def on(self, kind: type[Q], script: Script[Q], versions: tuple[int, int] | None = None) -> None:
        """Answer this kind of request with what `script` gives; None hangs up."""
        schema = kind.__schema__
        assert schema is not None
        assert schema.api_key is not None
        self.offered[schema.api_key] = versions or schema.versions

        def answer(version: int, frame: memoryview, position: int) -> bytes | None:
            request = decode(kind, frame, version, position)
            self.requests.append(request)
            said = script(request)
            return None if said is None else encode(said, version)

        self.answers[schema.api_key] = answer

    def answers_in_turn(self, kind: type[Q], said: Sequence[Message], versions: tuple[int, int] | None = None) -> None:
        """Answer with one after the other, and with the last one from then on."""
        left = list(said)
        self.on(kind, lambda _: left.pop(0) if len(left) > 1 else left[0], versions)

    def asked(self, kind: type[Q]) -> list[Q]:
        """The requests of a kind, in order."""
        return [request for request in self.requests if isinstance(request, kind)]

    def _find(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        code = self.find_codes.pop(0) if self.find_codes else 0
        if not request.coordinator_keys:
            return FindCoordinatorResponse(error_code=code, node_id=NODE_ID, host="127.0.0.1", port=self.port)
        found = [
            Coordinator(key=key, node_id=NODE_ID, host="127.0.0.1", port=self.port, error_code=code)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=found)
