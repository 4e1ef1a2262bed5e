"""What an error of the operating system means to those who asked: try again later, or this directory is gone."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ottla.model.errors import ApiError, ErrorCode, OttlaError, OutOfSpaceError, StorageError

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})


def is_out_of_space(error: OSError) -> bool:
    return error.errno in NO_SPACE


def out_of_space(directory: str, error: OSError) -> OutOfSpaceError:
    """The write did not happen and nothing has changed."""
    return OutOfSpaceError(directory, f"no space left to write ({error})")


def is_out_of_files(error: OSError) -> bool:
    return error.errno in NO_FILES


def out_of_files(directory: str, error: OSError) -> ApiError:
    """A file could not be opened, and nothing has changed. It is the process that has too many, nothing is broken."""
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: a file could not be opened ({error}); try again")


def unreadable(partition_directory: str, error: OSError) -> OttlaError:
    """What to tell after a failed read."""
    return (out_of_files if is_out_of_files(error) else failed)(partition_directory, error)


def failed(partition_directory: str, error: OSError) -> StorageError:
    """The log directory that holds the partition cannot be trusted any more."""
    return StorageError(os.path.dirname(partition_directory), f"{error} ({os.path.basename(partition_directory)})")


@contextmanager
def storage_errors(partition_directory: str) -> Iterator[None]:
    """Turn an OSError into a StorageError that names the log directory."""
    try:
        yield
    except OSError as error:
        raise failed(partition_directory, error) from error
