"""A run of batches into a partition that this broker leads, compiled: what `Partition.append_run` does with it.

What an editor must keep true: whatever changes in `Partition.append_run` and `Partition._appended` changes here.
"""

from ottla.log.partition_log import PartitionLog
from ottla.log.run_writing cimport append_run
from ottla.model.slots cimport get, get_int, put_int, slot_of
from ottla.runtime.partition import Partition
from ottla.runtime.topic_counters import TopicCounters
from ottla.wire.produced cimport Batches

cdef Py_ssize_t PARTITION_COUNTERS = slot_of(Partition, "counters")
cdef Py_ssize_t PARTITION_HIGH_WATERMARK = slot_of(Partition, "high_watermark")
cdef Py_ssize_t PARTITION_IS_SOLE = slot_of(Partition, "is_sole")
cdef Py_ssize_t PARTITION_LEADER_EPOCH = slot_of(Partition, "leader_epoch")
cdef Py_ssize_t PARTITION_LOG = slot_of(Partition, "log_or_none")
cdef Py_ssize_t PARTITION_WATCHERS = slot_of(Partition, "watchers")
cdef Py_ssize_t LOG_END_OFFSET = slot_of(PartitionLog, "log_end_offset")
cdef Py_ssize_t LOG_FLUSH_MESSAGES = slot_of(PartitionLog, "flush_messages")
cdef Py_ssize_t LOG_RECOVERY_POINT = slot_of(PartitionLog, "recovery_point")
cdef Py_ssize_t COUNTERS_BYTES_IN = slot_of(TopicCounters, "bytes_in")
cdef Py_ssize_t COUNTERS_MESSAGES_IN = slot_of(TopicCounters, "messages_in")


cdef object append_batches(partition, Batches batches, int first, long long records, long long size):
    """Append a batch and those that `next` leads to; the first one's offset, or None if each is to be appended alone.

    Errors as those of `Partition.append_run`.
    """
    cdef long long end_offset
    if not isinstance(partition, Partition):
        raise TypeError(f"a partition is wanted, not {partition!r}")
    cdef bint is_sole = get(partition, PARTITION_IS_SOLE)
    if not is_sole:
        partition.check_leads()
    log = get(partition, PARTITION_LOG) or partition.log
    end_offset = get_int(log, LOG_END_OFFSET) + records
    if end_offset - get_int(log, LOG_RECOVERY_POINT) >= get_int(log, LOG_FLUSH_MESSAGES):
        return None
    base_offset = append_run(log, batches, first, get_int(partition, PARTITION_LEADER_EPOCH))
    if base_offset is not None:
        if is_sole:
            count_in(get(partition, PARTITION_COUNTERS), records, size)
            put_int(partition, PARTITION_HIGH_WATERMARK, end_offset)
            if get(partition, PARTITION_WATCHERS):
                partition.changed()
        else:
            partition._appended(log, records, size)
    return base_offset


cdef int count_in(counters, long long records, long long size) except -1:
    put_int(counters, COUNTERS_MESSAGES_IN, get_int(counters, COUNTERS_MESSAGES_IN) + records)
    put_int(counters, COUNTERS_BYTES_IN, get_int(counters, COUNTERS_BYTES_IN) + size)
    return 0
