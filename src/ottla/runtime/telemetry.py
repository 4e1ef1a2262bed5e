"""Client telemetry (KIP-714): which clients push their metrics here, how often, and what came of it.

Theory of operation. An administrator writes subscriptions: configs of the resource type CLIENT_METRICS in the metadata
image. A client asks what it shall push, is given an id of its own and what all subscriptions that match it come to, and
then pushes in that rhythm. Whoever comes early is told THROTTLING_QUOTA_EXCEEDED. The subscription id is a checksum of
what the client was told; a push under another one means that the subscriptions have changed, and gets
UNKNOWN_SUBSCRIPTION_ID, upon which the client asks again.

Nothing here survives a restart, and nothing needs to: a client that nobody remembers is taken in as it comes, since the
same subscriptions give it the same id again. Pushed metrics (OTLP) are counted and let go, not looked into.

What an editor must keep true: everything that a client can make grow is bounded. `_instances` holds at most
`instances_max`, the one that was silent longest first, and lets go of clients that were silent for three intervals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import METADATA_TOPIC_ID, ZERO_UUID
from ottla.runtime.telemetry_subscriptions import (
    ClientSubscription,
    Subscription,
    TelemetryClient,
    combined,
    parse_subscriptions,
)
from ottla.wire.compression import Codec

if TYPE_CHECKING:
    from ottla.core.controller.image import MetadataImage
    from ottla.runtime.world import Clock

ACCEPTED_COMPRESSION: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""What clients are offered, the preferred one first. A push that is not compressed is taken as well."""
INSTANCES_MAX: Final = 16_384
FORGET_MS_MIN: Final = 60_000
FORGET_INTERVALS: Final = 3
_CODECS: Final = frozenset(Codec)
_RESERVED_IDS: Final = frozenset({ZERO_UUID, METADATA_TOPIC_ID})
_ASK_AGAIN_AT_ONCE: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""After such an answer to a push a client may ask for its subscription out of turn."""
_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A push as it arrived."""

    instance_id: UUID
    subscription_id: int
    terminating: bool
    compression: int
    size_bytes: int


class ClientInstance:
    """One client that is remembered, and what it pushed."""

    __slots__ = (
        "_last_ask",
        "_last_error",
        "_last_push",
        "_terminating",
        "_version",
        "client",
        "id",
        "last_push_bytes",
        "last_push_ms",
        "pushes",
        "seen",
        "subscription",
    )

    def __init__(
        self, instance_id: UUID, client: TelemetryClient, subscription: ClientSubscription, version: int
    ) -> None:
        self.id = instance_id
        self.client = client
        self.pushes = 0
        self.last_push_bytes = 0
        self.last_push_ms = 0
        """Wall time of the last push that was taken, 0 before the first."""
        self.seen = _NEVER
        self.subscribe(subscription, version)

    def subscribe(self, subscription: ClientSubscription, version: int) -> None:
        """The subscriptions have changed: the client may ask and push at once, as if it were new."""
        self.subscription = subscription
        self._version = version
        self._last_ask = _NEVER
        self._last_push = _NEVER
        self._last_error = ErrorCode.NONE
        self._terminating = False

    def is_behind(self, version: int) -> bool:
        return self._version != version

    def is_forgotten(self, now_ms: float) -> bool:
        return now_ms - self.seen > max(FORGET_MS_MIN, FORGET_INTERVALS * self.subscription.interval_ms)

    def ask(self, now_ms: float) -> ClientSubscription:
        """The client wants to know what to push."""
        if now_ms - max(self._last_ask, self._last_push) >= self.subscription.interval_ms:
            self._last_ask = now_ms
        elif self._last_error not in _ASK_AGAIN_AT_ONCE:
            raise _too_early()
        self._last_error = ErrorCode.NONE
        return self.subscription

    def push(self, push: Push, now_ms: float, wall_ms: int, bytes_max: int) -> None:
        """Take a push, or say with an ApiError why not."""
        try:
            self._check(push, now_ms, bytes_max)
        except ApiError as error:
            self._last_error = error.code
            raise
        finally:
            self._terminating = push.terminating
        self._last_error = ErrorCode.NONE
        self.pushes += 1
        self.last_push_bytes = push.size_bytes
        self.last_push_ms = wall_ms

    def _check(self, push: Push, now_ms: float, bytes_max: int) -> None:
        if self._terminating:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the client has said before that it ends")
        # Clients add chance to their first interval, so the first push after a question may come early.
        if self._last_ask > self._last_push or now_ms - self._last_push >= self.subscription.interval_ms:
            self._last_push = now_ms
        elif not push.terminating:
            raise _too_early()
        if push.subscription_id != self.subscription.id:
            raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the subscriptions have changed, ask for them again")
        if push.compression not in _CODECS:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {push.compression}")
        if push.size_bytes > bytes_max:
            raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE, f"a push has at most telemetry.max.bytes={bytes_max}")


class Telemetry:
    """The clients that push metrics to this broker. Belongs to the loop."""

    __slots__ = (
        "_clock",
        "_configs",
        "_instances",
        "_instances_max",
        "_new_uuid",
        "_subscriptions",
        "_version",
        "pushed_bytes",
        "pushes",
        "refused",
    )

    def __init__(self, clock: Clock, new_uuid: Callable[[], UUID], instances_max: int = INSTANCES_MAX) -> None:
        self.pushes = 0
        self.pushed_bytes = 0
        self.refused: Counter[ErrorCode] = Counter()
        """Questions and pushes that were answered with an error, by that error."""
        self._clock = clock
        self._new_uuid = new_uuid
        self._instances_max = instances_max
        self._instances: dict[UUID, ClientInstance] = {}
        """The one that was silent longest comes first."""
        self._configs: object = None
        self._subscriptions: tuple[Subscription, ...] = ()
        self._version = 0

    def ask(self, instance_id: UUID, client: TelemetryClient, image: MetadataImage) -> tuple[UUID, ClientSubscription]:
        """What a client shall push, and its id: a new one for the zero id."""
        try:
            instance = self._instance(instance_id if instance_id != ZERO_UUID else self._new_id(), client, image)
            return instance.id, instance.ask(self._now_ms())
        except ApiError as error:
            self.refused[error.code] += 1
            raise

    def push(self, push: Push, client: TelemetryClient, image: MetadataImage, bytes_max: int) -> None:
        """Take a push, or say with an ApiError why not."""
        try:
            if push.instance_id in _RESERVED_IDS:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a push needs the id that the broker has given")
            instance = self._instance(push.instance_id, client, image)
            instance.push(push, self._now_ms(), self._clock.now_ms(), bytes_max)
        except ApiError as error:
            self.refused[error.code] += 1
            raise
        self.pushes += 1
        self.pushed_bytes += push.size_bytes

    def instances(self) -> list[ClientInstance]:
        """The clients that are not yet forgotten, the one heard of last at the end."""
        now_ms = self._now_ms()
        for instance in [found for found in self._instances.values() if found.is_forgotten(now_ms)]:
            del self._instances[instance.id]
        return list(self._instances.values())

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    def _new_id(self) -> UUID:
        instance_id = self._new_uuid()
        while instance_id in self._instances:
            instance_id = self._new_uuid()
        return instance_id

    def _instance(self, instance_id: UUID, client: TelemetryClient, image: MetadataImage) -> ClientInstance:
        """The client with this id, subscribed to what the image says."""
        self._refresh(image)
        now_ms = self._now_ms()
        instance = self._instances.pop(instance_id, None)
        if instance is None or instance.is_forgotten(now_ms):
            self._make_room(now_ms)
            subscription = combined(self._subscriptions, client, instance_id)
            instance = ClientInstance(instance_id, client, subscription, self._version)
        elif instance.is_behind(self._version):
            instance.subscribe(combined(self._subscriptions, instance.client, instance_id), self._version)
        instance.seen = now_ms
        self._instances[instance_id] = instance
        return instance

    def _make_room(self, now_ms: float) -> None:
        while self._instances:
            oldest = next(iter(self._instances.values()))
            if len(self._instances) < self._instances_max and not oldest.is_forgotten(now_ms):
                break
            del self._instances[oldest.id]

    def _refresh(self, image: MetadataImage) -> None:
        # An image with other configs has another mapping of them, so nothing is parsed while they stay.
        if image.configs is self._configs:
            return
        self._configs = image.configs
        found = parse_subscriptions(image.configs)
        if found != self._subscriptions:
            self._subscriptions = found
            self._version += 1


def _too_early() -> ApiError:
    return ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval has not passed yet")
