"""A run of a producer's batches into the log, compiled: what `PartitionLog.append_run` does with them.

Theory of operation. What is written here, the interpreted way would write: the same bytes, with the same entries of
indexes and the same news of its producer. A run that is out of the ordinary is left to that way, and nothing has
changed. A write that does not do all it was asked for is made again by that way's functions, which know what to do
about it; so are all writes to files that are not the system's own.

What an editor must keep true: what `partition_log` says must stay true of an append. Whatever changes there, or in
`segment`, `segment_indexes`, `index`, `room` and `producer_state`, changes here.
"""

from posix.types cimport off_t

from ottla.log.disk import RealFile
from ottla.log.epochs import LeaderEpochs
from ottla.log.handles import FileHandle
from ottla.log.index import SparseIndex
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import Producer, ProducerStates, remembered
from ottla.log.room import FILLED_STEPS_MIN, RESERVED_FILLS, RESERVED_FILLS_MAX
from ottla.log.segment import Segment
from ottla.log.segment_indexes import SegmentIndexes
from ottla.log.segment_tail import TAIL_BATCHES_MAX, Tail
from ottla.model.limits import PRODUCER_BATCHES_REMEMBERED
from ottla.model.slots cimport get, get_int, put, put_int, slot_of
from ottla.wire.produced cimport Batch, Batches, put_number

cdef extern from "Python.h":
    char* PyByteArray_AS_STRING(object array)
    int PyByteArray_Resize(object array, Py_ssize_t size) except -1

cdef extern from "sys/uio.h" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t pwritev(int fd, const iovec* pieces, int count, off_t position)

cdef enum:
    BATCHES_MAX = 64
    SEQUENCE_MASK = 0x7FFFFFFF
    OFFSET_BYTES = 8
    LEADER_EPOCH_AT = 12
    INDEX_VALUE_BYTES = 4
    OFFSET_KEY_BYTES = 4
    TIME_KEY_BYTES = 8
    ZEROS_BYTES = 32768

cdef unsigned char[ZEROS_BYTES] ZEROS
cdef Py_ssize_t TAIL_MAX = TAIL_BATCHES_MAX
cdef Py_ssize_t REMEMBERED_MAX = PRODUCER_BATCHES_REMEMBERED
cdef long long FILLED_STEPS = FILLED_STEPS_MIN
cdef long long RESERVED_MIN = RESERVED_FILLS
cdef long long RESERVED_MAX = RESERVED_FILLS_MAX

# Where the objects of a log have what is asked for here.
cdef Py_ssize_t LOG_ACTIVE = slot_of(PartitionLog, "active")
cdef Py_ssize_t LOG_END_OFFSET = slot_of(PartitionLog, "log_end_offset")
cdef Py_ssize_t LOG_EPOCHS = slot_of(PartitionLog, "epochs")
cdef Py_ssize_t LOG_PRODUCERS = slot_of(PartitionLog, "producers")
cdef Py_ssize_t LOG_SEGMENT_BYTES = slot_of(PartitionLog, "_segment_bytes")
cdef Py_ssize_t LOG_STAMPS = slot_of(PartitionLog, "_stamps")
cdef Py_ssize_t EPOCHS_LATEST = slot_of(LeaderEpochs, "latest")
cdef Py_ssize_t SEGMENT_BASE_OFFSET = slot_of(Segment, "base_offset")
cdef Py_ssize_t SEGMENT_ENTRIES_MAX = slot_of(Segment, "index_entries_max")
cdef Py_ssize_t SEGMENT_FILL_AT = slot_of(Segment, "fill_at")
cdef Py_ssize_t SEGMENT_FILL_BYTES = slot_of(Segment, "fill_bytes")
cdef Py_ssize_t SEGMENT_HANDLE = slot_of(Segment, "log")
cdef Py_ssize_t SEGMENT_INDEXES = slot_of(Segment, "_indexes")
cdef Py_ssize_t SEGMENT_LAST_OFFSET_MAX = slot_of(Segment, "last_offset_max")
cdef Py_ssize_t SEGMENT_ROLL_TIMESTAMP = slot_of(Segment, "roll_timestamp")
cdef Py_ssize_t SEGMENT_SIZE = slot_of(Segment, "size")
cdef Py_ssize_t SEGMENT_TAIL = slot_of(Segment, "tail")
cdef Py_ssize_t HANDLE_FILE = slot_of(FileHandle, "file")
cdef Py_ssize_t HANDLE_USED = slot_of(FileHandle, "used")
cdef Py_ssize_t FILE_FD = slot_of(RealFile, "_fd")
cdef Py_ssize_t TAIL_LAST_OFFSETS = slot_of(Tail, "last_offsets")
cdef Py_ssize_t TAIL_POSITIONS = slot_of(Tail, "positions")
cdef Py_ssize_t INDEXES_INTERVAL_BYTES = slot_of(SegmentIndexes, "interval_bytes")
cdef Py_ssize_t INDEXES_MAX_TIMESTAMP = slot_of(SegmentIndexes, "max_timestamp")
cdef Py_ssize_t INDEXES_MAX_TIMESTAMP_OFFSET = slot_of(SegmentIndexes, "max_timestamp_offset")
cdef Py_ssize_t INDEXES_OFFSETS = slot_of(SegmentIndexes, "offsets")
cdef Py_ssize_t INDEXES_SINCE_ENTRY = slot_of(SegmentIndexes, "bytes_since_entry")
cdef Py_ssize_t INDEXES_TIMES = slot_of(SegmentIndexes, "times")
cdef Py_ssize_t INDEX_LAST_KEY = slot_of(SparseIndex, "last_key")
cdef Py_ssize_t INDEX_LAST_VALUE = slot_of(SparseIndex, "last_value")
cdef Py_ssize_t INDEX_PENDING_MAX = slot_of(SparseIndex, "_pending_bytes_max")
cdef Py_ssize_t INDEX_STATE = slot_of(SparseIndex, "_state")
cdef Py_ssize_t PRODUCERS_KNOWN = slot_of(ProducerStates, "_producers")
cdef Py_ssize_t PRODUCER_BATCHES = slot_of(Producer, "batches")
cdef Py_ssize_t PRODUCER_EPOCH = slot_of(Producer, "epoch")
cdef Py_ssize_t PRODUCER_LAST_TIMESTAMP = slot_of(Producer, "last_timestamp")
cdef Py_ssize_t PRODUCER_NEXT_SEQUENCE = slot_of(Producer, "next_sequence")
cdef Py_ssize_t PRODUCER_TRANSACTION = slot_of(Producer, "transaction_first_offset")


cdef struct Run:
    # Batches of one partition, added up.
    int first
    int count
    long long size
    long long records
    long long max_timestamp


cdef object append_run(log, Batches batches, int first, int leader_epoch):
    """Append a batch and those that `next` leads to; the offset of the first one.

    None, and nothing has changed, if the interpreted way has to do it. Errors as those of `PartitionLog.append_run`.
    """
    cdef Run run
    cdef long long base_offset, last_offset, position
    if not isinstance(log, PartitionLog):
        raise TypeError(f"a log is wanted, not {log!r}")
    if get(log, LOG_STAMPS) or not add_up(batches, first, &run):
        return None
    segment, base_offset = get(log, LOG_ACTIVE), get_int(log, LOG_END_OFFSET)
    position, last_offset = get_int(segment, SEGMENT_SIZE), base_offset + run.records - 1
    if (
        position + run.size > get_int(log, LOG_SEGMENT_BYTES)
        or last_offset > get_int(segment, SEGMENT_LAST_OFFSET_MAX)
        or run.max_timestamp > get(segment, SEGMENT_ROLL_TIMESTAMP)
        or (run.count > 1 and run.count >= entries_left(segment))
    ):
        return None
    producer = None
    if batches.at[first].producer_id >= 0:
        producer = expecting(get(log, LOG_PRODUCERS), batches.at + first)
        if producer is None:
            return None
    assign(batches, first, base_offset, leader_epoch)
    try:
        write(segment, batches, &run, position)
    except OSError as error:
        raise log._not_written(error) from error
    note(segment, batches, &run, base_offset, position)
    put_int(log, LOG_END_OFFSET, last_offset + 1)
    epochs = get(log, LOG_EPOCHS)
    if leader_epoch >= 0 and leader_epoch != get_int(epochs, EPOCHS_LATEST):
        epochs.assign(leader_epoch, base_offset)
    if producer is not None:
        remember(producer, batches, first, base_offset)
    return base_offset


cdef bint add_up(Batches batches, int first, Run* run) noexcept:
    """False if they are too many, or not what one producer sends one after the other."""
    cdef Batch* batch
    cdef Batch* before = NULL
    run.first, run.count, run.size, run.records, run.max_timestamp = first, 0, 0, 0, -1
    while first >= 0:
        batch = batches.at + first
        if before is not NULL and not follows(before, batch):
            return False
        run.count += 1
        run.size += batch.size
        run.records += <long long> batch.last_delta + 1
        if batch.max_timestamp > run.max_timestamp:
            run.max_timestamp = batch.max_timestamp
        before, first = batch, batch.next
    return run.count <= BATCHES_MAX


cdef bint follows(const Batch* before, const Batch* batch) noexcept:
    if batch.producer_id != before.producer_id:
        return False
    if batch.producer_id < 0:
        return True
    return batch.producer_epoch == before.producer_epoch and batch.sequence == next_sequence(before)


cdef int next_sequence(const Batch* batch) noexcept:
    return <int> ((<long long> batch.sequence + batch.last_delta + 1) & SEQUENCE_MASK)


cdef void assign(Batches batches, int first, long long base_offset, int leader_epoch) noexcept:
    """Give the batches their places in the log."""
    cdef Batch* batch
    while first >= 0:
        batch = batches.at + first
        put_number(batch.data, <unsigned long long> base_offset, OFFSET_BYTES)
        put_number(batch.data + LEADER_EPOCH_AT, <unsigned int> leader_epoch, 4)
        base_offset += <long long> batch.last_delta + 1
        first = batch.next


# -- the file


cdef int write(segment, Batches batches, Run* run, long long position) except -1:
    """Write a run at the end of a segment, with room behind it where it is due (`room`)."""
    cdef long long end = position + run.size, fill_bytes = get_int(segment, SEGMENT_FILL_BYTES), filled = 0
    cdef bint gets_room = end > get_int(segment, SEGMENT_FILL_AT)
    handle = get(segment, SEGMENT_HANDLE)
    put(handle, HANDLE_USED, True)
    file = get(handle, HANDLE_FILE) or handle.get()
    if gets_room and run.size < fill_bytes:
        filled = (fill_bytes - end % fill_bytes) % fill_bytes
    if (
        type(file) is not RealFile
        or filled > ZEROS_BYTES
        or (gets_room and is_reserve_due(position, end, fill_bytes))
        or not is_written(get_int(file, FILE_FD), batches, run, position, filled)
    ):
        write_interpreted(segment, file, batches.views(run.first), position, end, gets_room)
    elif gets_room:
        put_int(segment, SEGMENT_FILL_AT, end + filled)
        segment._files.rooms.note(segment)
    return 0


cdef bint is_reserve_due(long long position, long long end, long long fill_bytes) noexcept:
    """Whether a log that is so long gets blocks ahead with this write."""
    cdef long long fills = position // (FILLED_STEPS * fill_bytes), step = fill_bytes
    if fills < RESERVED_MIN:
        return False
    while fills > 1 and step < RESERVED_MAX * fill_bytes:
        fills, step = fills >> 1, step << 1
    return position // step != end // step


cdef bint is_written(int fd, Batches batches, Run* run, long long position, long long filled) noexcept:
    """Write, and zeros behind it; False if not all of it could be written, for whatever reason."""
    cdef iovec[BATCHES_MAX + 1] pieces
    cdef int count = 0, number = run.first
    cdef ssize_t written
    while number >= 0:
        pieces[count].iov_base, pieces[count].iov_len = batches.at[number].data, batches.at[number].size
        count, number = count + 1, batches.at[number].next
    if filled:
        pieces[count].iov_base, pieces[count].iov_len = ZEROS, filled
        count += 1
    with nogil:
        written = pwritev(fd, pieces, count, position)
    return written == run.size + filled


cdef int write_interpreted(segment, file, list views, long long position, long long end, bint gets_room) except -1:
    if gets_room:
        segment._write_with_room(file, views, position, end)
    elif len(views) > 1:
        file.pwritev(views, position)
    else:
        file.pwrite(views[0], position)
    return 0


# -- what is known of it


cdef int note(segment, Batches batches, const Run* run, long long base_offset, long long position) except -1:
    """Tail and indexes learn of a run that is in the file, and the segment ends behind it."""
    cdef Batch* batch
    cdef int number = run.first
    cdef long long segment_offset = get_int(segment, SEGMENT_BASE_OFFSET)
    cdef bint has_entries = False
    indexes = get(segment, SEGMENT_INDEXES) or segment.indexes
    cdef long long since_entry = get_int(indexes, INDEXES_SINCE_ENTRY)
    cdef long long interval_bytes = get_int(indexes, INDEXES_INTERVAL_BYTES)
    cdef long long max_timestamp = get_int(indexes, INDEXES_MAX_TIMESTAMP)
    tail = get(segment, SEGMENT_TAIL)
    if tail is None:
        tail = segment.tail = Tail(base_offset)
    last_offsets, positions = get(tail, TAIL_LAST_OFFSETS), get(tail, TAIL_POSITIONS)
    while number >= 0:
        batch = batches.at + number
        base_offset += <long long> batch.last_delta + 1
        last_offsets.append(base_offset - 1)
        positions.append(position)
        if batch.max_timestamp > max_timestamp:
            max_timestamp = batch.max_timestamp
            put_int(indexes, INDEXES_MAX_TIMESTAMP, max_timestamp)
            put_int(indexes, INDEXES_MAX_TIMESTAMP_OFFSET, base_offset - 1)
        if since_entry > interval_bytes:
            has_entries, since_entry = True, 0
            add_entries(indexes, segment_offset, base_offset - 1 - segment_offset, position, max_timestamp)
        since_entry += batch.size
        position += batch.size
        number = batch.next
    put_int(indexes, INDEXES_SINCE_ENTRY, since_entry)
    put_int(segment, SEGMENT_SIZE, position)
    while <Py_ssize_t> len(positions) > TAIL_MAX:
        tail.trim()
    if has_entries and entries_left(segment) <= 0:
        put_int(segment, SEGMENT_LAST_OFFSET_MAX, -1)
    return 0


cdef long long entries_left(segment) except? -1:
    """How many entries the offset index may still get."""
    indexes = get(segment, SEGMENT_INDEXES) or segment.indexes
    stored, pending = <tuple> get(get(indexes, INDEXES_OFFSETS), INDEX_STATE)
    cdef long long count = <long long> stored + len(pending) // (OFFSET_KEY_BYTES + INDEX_VALUE_BYTES)
    return get_int(segment, SEGMENT_ENTRIES_MAX) - count


cdef int add_entries(
    indexes, long long segment_offset, long long relative, long long position, long long max_timestamp
) except -1:
    """What `SegmentIndexes.note` adds when it is time for an entry."""
    add_entry(get(indexes, INDEXES_OFFSETS), relative, position, OFFSET_KEY_BYTES)
    times = get(indexes, INDEXES_TIMES)
    if max_timestamp > get_int(times, INDEX_LAST_KEY):
        relative = get_int(indexes, INDEXES_MAX_TIMESTAMP_OFFSET) - segment_offset
        add_entry(times, max_timestamp, relative, TIME_KEY_BYTES)
    return 0


cdef int add_entry(index, long long key, long long value, int key_bytes) except -1:
    """What `SparseIndex.append` does."""
    pending = (<tuple> get(index, INDEX_STATE))[1]
    cdef Py_ssize_t size = len(pending), grown = size + key_bytes + INDEX_VALUE_BYTES
    PyByteArray_Resize(pending, grown)
    cdef unsigned char* at = <unsigned char*> PyByteArray_AS_STRING(pending) + size
    put_number(at, <unsigned long long> key, key_bytes)
    put_number(at + key_bytes, <unsigned long long> value, INDEX_VALUE_BYTES)
    put_int(index, INDEX_LAST_KEY, key)
    put_int(index, INDEX_LAST_VALUE, value)
    if grown >= get_int(index, INDEX_PENDING_MAX):
        index.try_to_write()
    return 0


cdef object expecting(producers, const Batch* batch):
    """What `ProducerStates.expecting` says."""
    producer = (<dict> get(producers, PRODUCERS_KNOWN)).get(batch.producer_id)
    if (
        producer is None
        or batch.sequence != get_int(producer, PRODUCER_NEXT_SEQUENCE)
        or batch.producer_epoch != get_int(producer, PRODUCER_EPOCH)
        or get(producer, PRODUCER_TRANSACTION) is not None
    ):
        return None
    return producer


cdef int remember(producer, Batches batches, int first, long long base_offset) except -1:
    """What `Producer.remember` notes of each batch."""
    cdef Batch* batch = batches.at + first
    cdef long long last_offset
    cdef int last_sequence
    cdef list known = get(producer, PRODUCER_BATCHES)
    while first >= 0:
        batch = batches.at + first
        last_offset = base_offset + batch.last_delta
        last_sequence = <int> ((<long long> batch.sequence + batch.last_delta) & SEQUENCE_MASK)
        known.append(remembered((batch.sequence, last_sequence, base_offset, last_offset, batch.max_timestamp)))
        base_offset = last_offset + 1
        first = batch.next
    if len(known) > REMEMBERED_MAX:
        del known[: len(known) - REMEMBERED_MAX]
    put_int(producer, PRODUCER_NEXT_SEQUENCE, next_sequence(batch))
    put_int(producer, PRODUCER_LAST_TIMESTAMP, batch.max_timestamp)
    return 0
