"""The worker's own side: whatever a job comes to, the broker is told, and the next one has its turn."""

from __future__ import annotations

import pytest

from ottla.log import compaction_run
from ottla.log.compaction import CompactionError, CompactionJob
from ottla.model.errors import CorruptLogError
from ottla.runtime.record_frames import Failed, Validate
from ottla.runtime.record_worker_main import answer, compact
from ottla.wire import record_checks

JOB = CompactionJob(
    directory="/nowhere", segments=[], first_dirty_offset=0, first_uncleanable_offset=0, now_ms=0,
    delete_retention_ms=0, segment_bytes=1, segment_index_bytes=1, index_interval_bytes=1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("error", "message", "is_corrupt_log"),
    [
        (CorruptLogError("offset 9 is out of order"), "offset 9 is out of order", True),
        (CompactionError("cancelled"), "CompactionError: cancelled", False),
        (OSError(5, "Input/output error"), "OSError: [Errno 5] Input/output error", False),
        (ZeroDivisionError("nobody has thought of this"), "ZeroDivisionError: nobody has thought of this", False),
    ],
)
def test_a_job_that_fails_is_answered_whatever_happened(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str, is_corrupt_log: bool
) -> None:
    def fail(*_args: object, **_more: object) -> None:
        raise error

    monkeypatch.setattr(compaction_run, "run_compaction", fail)
    told = compact(7, JOB, lambda _size: None, lambda _reply: None)
    assert told == Failed(7, message, is_corrupt_log=is_corrupt_log)


@pytest.mark.parametrize("error", [MemoryError("no room"), ZeroDivisionError("nobody has thought of this")])
def test_a_batch_that_nobody_has_thought_of_does_not_end_the_jobs_of_others(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_args: object, **_more: object) -> None:
        raise error

    monkeypatch.setattr(record_checks, "validated", fail)
    assert answer(Validate(7, b"", False, None)) == Failed(7, f"{type(error).__name__}: {error}")
