"""A broker's life in the cluster: it registers, says that it lives, is unfenced, and hands over before it stops.

Theory of operation. `register` asks the controller for a broker epoch until one answers. From then on one task sends
heartbeats. A broker starts fenced; it stays so until it says that it may lead (`unfence`), which it does when its
metadata is as new as its registration and its logs are repaired. Later the controller may fence it again, because it
heard nothing of it for too long; the next heartbeat then unfences it. Where the controller no longer knows this life
of the broker, the broker registers once more, as the same incarnation.

A broker that cannot be registered for a reason that waiting does not cure stops: a foreign cluster, features that it
lacks, or a node id that somebody else uses and goes on using for longer than a session lasts.

What an editor must keep true:
- A broker asks to be unfenced only while all of its logs are recovered and served.
- Every wait of a start and of a stop is bounded. A running broker asks for a controller forever, slowly: it serves what
  it leads meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

import structlog

from ottla.core.controller.cluster_commands import BrokerHeartbeat, HeartbeatAnswer
from ottla.core.controller.commands import AnswerT, Command
from ottla.model.errors import ApiError, ErrorCode, OttlaError
from ottla.runtime.network import PeerError

if TYPE_CHECKING:
    from ottla.core.controller.commands import RegisterBroker
    from ottla.core.controller.image import MetadataImage
    from ottla.model.configs.quorum import Voter
    from ottla.model.configs.resolve import BrokerConfig

RETRY_SECONDS: Final = 0.05
RETRY_SECONDS_MAX: Final = 1.0
SAID_AGAIN_SECONDS: Final = 10.0
"""How often the log repeats that no controller takes what this broker says."""
FENCED_SECONDS: Final = 0.05
"""Between the heartbeats of a broker that waits to be unfenced, or to stop."""
SHUTDOWN_SECONDS_MAX: Final = 10.0
SHUTDOWN_SILENCE_SECONDS_MAX: Final = 2.0
"""A broker that wants to stop and hears of no controller for so long stops without one."""

GONE: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
HOPELESS: Final = (
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REGISTRATION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)

log = structlog.get_logger("ottla.broker")


class Channel(Protocol):
    """The way to the active controller, wherever it is."""

    async def submit(self, command: Command[AnswerT]) -> AnswerT:
        """ApiError or PeerError where there is no answer."""


class RegistrationError(OttlaError):
    """The cluster does not take this broker; the message says what to do."""


class BrokerLifecycle:
    """One broker's registration and heartbeats. `epoch` is -1 until it is registered."""

    __slots__ = (
        "_channel",
        "_config",
        "_heard_at",
        "_heartbeats",
        "_image",
        "_may_lead",
        "_may_stop",
        "_offline_directories",
        "_on_failure",
        "_on_registered",
        "_registration",
        "_said_at",
        "_wake",
        "_wants_stop",
        "_watchers",
        "epoch",
        "is_fenced",
    )

    def __init__(
        self,
        channel: Channel,
        registration: Callable[[int], RegisterBroker],
        *,
        config: Callable[[], BrokerConfig],
        image: Callable[[], MetadataImage],
        on_registered: Callable[[int], None],
        on_failure: Callable[[Exception], None],
        offline_directories: Callable[[], Sequence[UUID]] = tuple,
    ) -> None:
        """`registration` makes the command out of the epoch of this incarnation's last registration, -1 at first."""
        self._channel = channel
        self._registration = registration
        self._config = config
        self._image = image
        self._on_registered = on_registered
        self._on_failure = on_failure
        self._offline_directories = offline_directories
        self.epoch = -1
        self.is_fenced = True
        self._may_lead = False
        self._wants_stop = False
        self._may_stop = False
        self._wake = asyncio.Event()
        """The next heartbeat is due now."""
        self._watchers: list[asyncio.Future[None]] = []
        self._heartbeats: asyncio.Task[None] | None = None
        self._heard_at = self._said_at = float("-inf")

    # -- the start

    async def register(self, *, heartbeats: bool = True) -> None:
        """Become known to the cluster. RegistrationError if it does not want this broker, or is not there.

        A broker whose process is the whole cluster needs no heartbeats.
        """
        async with self._bounded("no controller took this broker's registration"):
            await self._register()
        if heartbeats:
            self._begin_heartbeats()

    def begin_heartbeats(self) -> None:
        """The process is not the whole cluster any more: others may decide whether it lives."""
        if self.epoch >= 0 and self._heartbeats is None:
            self._may_lead, self.is_fenced = True, False
            self._begin_heartbeats()

    def _begin_heartbeats(self) -> None:
        self._heartbeats = asyncio.create_task(self._send_heartbeats(), name="broker-heartbeats")

    async def caught_up(self) -> None:
        """Return when the metadata here has this broker's registration in it, and so all that came before."""
        async with self._bounded("the metadata did not come up to this broker's registration"):
            while self._image().offset < self.epoch:
                await self._change()

    async def unfence(self) -> None:
        """Say that this broker may lead, and return when the cluster lets it."""
        self._may_lead = True
        self._wake.set()
        async with self._bounded("no controller unfenced this broker"):
            # Its own metadata has to say so too: it decides what this broker leads.
            while self.is_fenced or not self._is_active_in(self._image()):
                await self._change()

    @contextlib.asynccontextmanager
    async def _bounded(self, what: str) -> AsyncIterator[None]:
        wait_ms = self._config().initial_broker_registration_timeout_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                yield
        except TimeoutError:
            names = ", ".join(f"{voter.node_id}@{voter.host}:{voter.port}" for voter in self._voters())
            raise RegistrationError(
                f"{what} within {wait_ms} ms (initial.broker.registration.timeout.ms): a majority of the voters must "
                f"run and be reachable. The voters are {names or 'unknown'}"
            ) from None

    def _voters(self) -> Sequence[Voter]:
        return self._config().controller_quorum_voters

    async def _register(self) -> None:
        """Ask until the controller has answered; what waiting does not cure is raised."""
        loop = asyncio.get_running_loop()
        patience_until = loop.time() + 2 * self._config().broker_session_timeout_ms / 1000
        pause = RETRY_SECONDS
        while True:
            registration = self._registration(self.epoch)
            try:
                self.epoch = await self._channel.submit(registration)
            except (ApiError, PeerError) as error:
                code = error.code if isinstance(error, ApiError) else None
                if code is ErrorCode.INCONSISTENT_CLUSTER_ID:
                    raise RegistrationError(
                        f"the data directories here belong to cluster {registration.cluster_id}, and the controllers "
                        f"that the config names to another one: correct controller.quorum.voters or cluster.id, or "
                        f"give this node an empty directory ({error})"
                    ) from error
                if code in HOPELESS:
                    raise RegistrationError(f"the cluster refuses this broker: {error}") from error
                if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION and loop.time() > patience_until:
                    raise RegistrationError(
                        f"another live broker has node.id {self._config().node_id}: stop it, or give this one an id "
                        f"of its own ({error})"
                    ) from error
                self._say("this broker could not register yet", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_SECONDS_MAX)
            else:
                self._heard_at = loop.time()
                self._on_registered(self.epoch)
                return

    # -- while it runs

    def metadata_changed(self) -> None:
        """There is newer metadata here."""
        if self._may_lead and not self.is_fenced and not self._is_active_in(self._image()):
            broker = self._image().brokers.get(self._config().node_id)
            if broker is not None and broker.epoch >= self.epoch and not self._wants_stop:
                self.is_fenced = True
                self._wake.set()
        self._changed()

    def directory_failed(self) -> None:
        """Tell the controller soon, so that others lead what lay there, or nobody is said to."""
        self._wake.set()
        if not self._wants_stop:
            self.begin_heartbeats()  # A process that is the whole cluster has sent none so far.

    def _is_active_in(self, image: MetadataImage) -> bool:
        broker = image.brokers.get(self._config().node_id)
        return broker is not None and broker.epoch == self.epoch and not broker.fenced

    async def _send_heartbeats(self) -> None:
        retry_seconds = RETRY_SECONDS
        while True:
            self._wake.clear()
            try:
                await self._send_heartbeat()
                pause = self._pause_seconds()
                retry_seconds = RETRY_SECONDS
            except (ApiError, PeerError, TimeoutError) as error:
                self._say("no controller takes this broker's heartbeats", error)
                pause, retry_seconds = retry_seconds, min(retry_seconds * 2, RETRY_SECONDS_MAX)
            except RegistrationError as error:
                self._on_failure(error)
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    def _pause_seconds(self) -> float:
        if self._wants_stop or (self._may_lead and self.is_fenced):
            return FENCED_SECONDS
        return self._config().broker_heartbeat_interval_ms / 1000

    async def _send_heartbeat(self) -> None:
        config = self._config()
        heartbeat = BrokerHeartbeat(
            broker_id=config.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._image().offset,
            want_fence=not self._may_lead,
            want_shut_down=self._wants_stop,
            offline_log_dirs=self._offline_directories(),
        )
        try:
            async with asyncio.timeout(config.broker_session_timeout_ms / 1000):
                answer = await self._channel.submit(heartbeat)
        except ApiError as error:
            if error.code not in GONE:
                raise
            await self._forgotten(error)
        else:
            self._take(answer)

    async def _forgotten(self, error: ApiError) -> None:
        """The controller does not know this life of the broker."""
        if self._wants_stop:
            self._may_stop = True
            self._changed()
            return
        log.warning("the controller does not know this broker any more, so it registers again", reason=str(error))
        self.is_fenced = True
        await self._register()

    def _take(self, answer: HeartbeatAnswer) -> None:
        was_fenced, self.is_fenced = self.is_fenced, answer.is_fenced
        self._heard_at = asyncio.get_running_loop().time()
        self._may_stop = self._may_stop or answer.should_shut_down
        if was_fenced != self.is_fenced and not self._wants_stop:
            log.info("this broker is fenced" if self.is_fenced else "this broker is unfenced", epoch=self.epoch)
        self._changed()

    # -- the end

    async def shut_down(self) -> None:
        """Hand over what this broker leads, while it still serves; bounded. Nothing happens if nobody can take it."""
        config, brokers = self._config(), self._image().brokers
        others = any(broker.active for broker in brokers.values() if broker.id != config.node_id)
        if self._heartbeats is None or self._heartbeats.done() or not others or not config.controlled_shutdown_enable:
            return
        loop = asyncio.get_running_loop()
        self._wants_stop = True
        self._wake.set()
        started = loop.time()
        while not self._may_stop:
            heard_at = max(started, self._heard_at)
            if loop.time() > min(started + SHUTDOWN_SECONDS_MAX, heard_at + SHUTDOWN_SILENCE_SECONDS_MAX):
                log.warning("the broker stops without having handed over all it leads")
                return
            await self._change(FENCED_SECONDS)

    async def close(self) -> None:
        """No more heartbeats."""
        self._wants_stop = True
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.wait([self._heartbeats])

    # -- waiting and saying

    async def _change(self, seconds_max: float | None = None) -> None:
        """Return when something has changed, or that much time has passed."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append(change)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await change

    def _changed(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    def _say(self, what: str, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= SAID_AGAIN_SECONDS:
            self._said_at = now
            log.warning(what, reason=str(error) or type(error).__name__)
