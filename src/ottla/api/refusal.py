"""From an exception to the error code of one partition or topic in an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.errors import ApiError, CorruptLogError, ErrorCode, OttlaError, OutOfSpaceError, StorageError

if TYPE_CHECKING:
    from ottla.api.context import Services


def refusal(services: Services, error: OttlaError) -> ApiError:
    """What a client is told; a failed log directory goes offline on the way, and a full one is written about."""
    if isinstance(error, ApiError):
        if isinstance(error, OutOfSpaceError):
            services.log_directories.is_full(error)
        return error
    if isinstance(error, StorageError):
        services.partitions.directory_failed(error)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    if isinstance(error, CorruptLogError):
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
