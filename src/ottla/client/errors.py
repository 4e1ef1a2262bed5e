"""What can go wrong on the way to a broker and back.

A message is one line, names the address or the topic, and says what to do about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.model.errors import ErrorCode, OttlaError

if TYPE_CHECKING:
    from ottla.model.ids import TopicPartition


class ClientError(OttlaError):
    """The base of every error that the client raises."""

    retriable = False


class CannotConnectError(ClientError):
    """No broker answered at the addresses that were given."""

    retriable = True


class ConnectionLostError(ClientError):
    """The broker closed the connection, or it broke, while an answer was owed."""

    retriable = True


class RequestTimeoutError(ClientError):
    """The broker took the request and did not answer in time."""

    retriable = True


class NotKafkaError(CannotConnectError):
    """Something listens there, and it is not a Kafka broker (or it wants TLS)."""

    retriable = False


class UnsupportedSecurityError(ClientError):
    """Settings of security that this client cannot honour, or cannot read."""


class AuthenticationError(ClientError):
    """One end does not believe the other who it is."""


class UnsupportedVersionError(ClientError):
    """The broker does not know the API, or only in versions that this client does not speak."""


class MalformedAnswerError(ClientError):
    """The broker's answer could not be read."""


class BrokerError(ClientError):
    """The broker refused, with one of Kafka's error codes."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.retriable = code in RETRIABLE_CODES


class NotFoundError(BrokerError):
    """The topic, partition or resource that was named is not there."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.retriable = False


class AlreadyExistsError(BrokerError):
    """What was to be created is there already."""


class OffsetOutOfRangeError(BrokerError):
    """The partition no longer holds, or does not yet hold, the offset that was asked for."""

    def __init__(self, partition: TopicPartition, offset: int, start: int, end: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {partition} is outside the log, which holds {start} to {end}: "
            f"start within that range, or from the beginning",
        )
        self.partition = partition
        self.offset = offset
        self.log_start_offset = start
        self.log_end_offset = end


class DeliveryError(ClientError):
    """Records that were handed to a producer and did not arrive, or may not have."""

    def __init__(self, message: str, failed_records: int) -> None:
        super().__init__(message)
        self.failed_records = failed_records


class BufferFullError(ClientError):
    """The producer's memory is full and no broker took anything from it in time."""


class CorruptBatchError(ClientError):
    """A fetched batch whose checksum does not match its bytes."""


RETRIABLE_CODES: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Codes after which the same request may succeed later, or at another broker."""

STALE_METADATA_CODES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_CONTROLLER,
    }
)
"""Codes that say: what you believe about leaders is old."""

_NOT_FOUND_CODES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)

_ADVICE: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition; see `ottla topic list`",
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic with this name exists already",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment; try again",
    ErrorCode.MESSAGE_TOO_LARGE: "a batch is larger than the topic's max.message.bytes; send less or raise it",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "you are not allowed to do this with the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "you are not allowed to do this with the cluster",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "topic names have letters, digits, '.', '_' and '-', at most 249 of them",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the replication factor is larger than the number of brokers",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker could not write or read its disk; see its log",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not support this request",
    ErrorCode.REQUEST_TIMED_OUT: "the broker did not finish in time; try again",
    ErrorCode.POLICY_VIOLATION: "the broker's policy forbids it",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "the broker misses earlier records of this producer; start a new one",
}


def error_code(number: int) -> ErrorCode:
    """The code by its number; a number that is newer than this client reads as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def broker_error(number: int, subject: str, detail: str | None = None) -> BrokerError:
    """The exception for an error code. `subject` says what was tried, `detail` is the broker's own sentence, if any."""
    code = error_code(number)
    reason = _one_line(detail) or _ADVICE.get(code) or code.name.lower().replace("_", " ")
    message = f"{subject}: {reason} ({code.name})"
    if code in _NOT_FOUND_CODES:
        return NotFoundError(code, message)
    if code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return AlreadyExistsError(code, message)
    return BrokerError(code, message)


def _one_line(text: str | None) -> str:
    return " ".join(text.split()).rstrip(".") if text else ""
