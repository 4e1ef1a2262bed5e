"""A client in a thread."""

from __future__ import annotations

import random
import sys
import threading
import traceback
from typing import Any, Final

from confluent_kafka import KafkaError, Message

from chaos.recording import Recording
from simulator.history import Outcome, Send

STOP_SECONDS_MAX: Final = 90.0


def settings(bootstrap_servers: str, **more: Any) -> dict[str, Any]:
    """What all clients have in common. Keys are written with underscores."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "error_cb": lambda _error: None,
        "log_level": 0,
        # When all brokers are gone, librdkafka would begin anew with other handles, and wait for old ones for ever.
        "metadata.recovery.strategy": "none",
        **{key.replace("_", "."): value for key, value in more.items()},
    }


class Client:
    """Works from `start` until it is told to `stop`; what it dies of is in `crash`."""

    def __init__(self, name: str, bootstrap_servers: str, recording: Recording, seed: int) -> None:
        self.name = name
        self.crash = ""
        self._bootstrap_servers = bootstrap_servers
        self._recording = recording
        self._random = random.Random(f"{seed}/{name}")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Tell it to end, and wait for nothing."""
        self._stopping.set()

    def join(self) -> bool:
        """Whether it has ended in time."""
        self._thread.join(STOP_SECONDS_MAX)
        return not self._thread.is_alive()

    def where(self) -> str:
        """What it is doing, for one that does not end."""
        frame = sys._current_frames().get(self._thread.ident or -1)
        return "".join(traceback.format_stack(frame)[-4:])

    def _work(self) -> None:
        try:
            self._run()
        except Exception:
            self.crash = traceback.format_exc()

    def _run(self) -> None:
        raise NotImplementedError

    def _settle(self, send: Send, error: KafkaError | None, message: Message) -> None:
        """Record what a client's library says of a record."""
        if error is None:
            offset = message.offset()
            self._recording.settle(send, Outcome.OK, -1 if offset is None else offset)
        else:
            self._recording.settle(send, Outcome.UNKNOWN)
