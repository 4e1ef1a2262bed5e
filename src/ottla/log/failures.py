"""What an error of the operating system means to those who asked: try again later, or this directory is gone."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ottla.model.errors import ApiError, ErrorCode, StorageError

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_out_of_space(error: OSError) -> bool:
    return error.errno in NO_SPACE


def out_of_space(directory: str, error: OSError) -> ApiError:
    """The write did not happen and nothing has changed; the directory serves on, and a retry may find room."""
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: no space left to write ({error})")


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
