"""Producers' batches without a Python object for each: what `produce_lead` and `batch.check` find, compiled.

Theory of operation. `Requests` is what a `Lead` knows, as bytes to compare. It reads the batches of a request that
matches into `Batches`, an array of what their headers say and where they lie. They are those that the interpreted way
finds (`Lead.pieces`), or none: whatever is not plain is left to that way, which says what is wrong with it.

What an editor must keep true:
- Nothing is found that `Lead.match` and `Lead.pieces` would not find. The other way round is allowed.
- A batch's bytes are good as long as its frame's buffer is: until the loop runs the next callback.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.string cimport memcmp, memcpy

from ottla.wire.batch import CODEC_MASK, CODEC_MAX, NOT_FOR_PRODUCERS
from ottla.wire.crc import crc32c
from ottla.wire.produce import PARTITIONS_INLINE_MAX, stored_layout, topic_start

cdef extern from "Python.h":
    Py_buffer* PyMemoryView_GET_BUFFER(object view)
    object PyMemoryView_FromMemory(char* memory, Py_ssize_t size, int flags)
    int PyBUF_READ
    int PyBUF_WRITE

cdef enum:
    ROOM_MIN = 8
    HEAD_BYTES = 4
    CORRELATION_END = 8
    VARINT_BITS_MAX = 28
    SIZE_BYTES = 4
    INDEX_BYTES = 4
    OUTCOME_BYTES = 30
    # The header of a batch, see `batch`.
    HEADER_BYTES = 61
    PREFIX_BYTES = 12
    CRC_START = 21
    MAGIC = 2
    RECORD_BYTES_MIN = 7

cdef int CODEC = CODEC_MASK
cdef int LAST_CODEC = CODEC_MAX
cdef int REFUSED = NOT_FOR_PRODUCERS
cdef long long PARTITIONS_MAX = PARTITIONS_INLINE_MAX
cdef long long NO_TIME = -1


cdef inline unsigned int u32(const unsigned char* at) noexcept:
    return <unsigned int> at[0] << 24 | <unsigned int> at[1] << 16 | <unsigned int> at[2] << 8 | at[3]


cdef inline int i16(const unsigned char* at) noexcept:
    return <short> (<unsigned int> at[0] << 8 | at[1])


cdef inline long long i64(const unsigned char* at) noexcept:
    return <long long> (<unsigned long long> u32(at) << 32 | u32(at + 4))


cdef inline unsigned char* put_bytes(unsigned char* at, bytes data) noexcept:
    memcpy(at, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return at + PyBytes_GET_SIZE(data)


cdef inline long long varint(const unsigned char** at, const unsigned char* end) noexcept:
    """An unsigned number, and the place behind it; -1 if it does not end in time, or needs more than five bytes."""
    cdef long long number = 0
    cdef int shift = 0
    cdef const unsigned char* place = at[0]
    while place < end and shift <= VARINT_BITS_MAX:
        number |= <long long> (place[0] & 0x7F) << shift
        if place[0] < 0x80:
            at[0] = place + 1
            return number
        place, shift = place + 1, shift + 7
    return -1


cdef class Batches:
    """Batches that may be stored as they are, in the order in which they came."""

    def __cinit__(self):
        self.at = NULL
        self.count = self._room = 0
        self._frames = []

    def __dealloc__(self):
        PyMem_Free(self.at)

    cdef Batch* add(self) except NULL:
        cdef Batch* grown
        if self.count == self._room:
            self._room = max(ROOM_MIN, 2 * self._room)
            grown = <Batch*> PyMem_Realloc(self.at, self._room * sizeof(Batch))
            if grown is NULL:
                raise MemoryError
            self.at = grown
        self.count += 1
        return self.at + (self.count - 1)

    cdef object view(self, int number):
        """The bytes of a batch."""
        return PyMemoryView_FromMemory(<char*> self.at[number].data, self.at[number].size, PyBUF_WRITE)

    cdef object views(self, int first):
        """The bytes of a batch and of those that `next` leads to."""
        views = []
        while first >= 0:
            views.append(self.view(first))
            first = self.at[first].next
        return views


cdef bint may_be_stored(Batch* batch) except -1:
    """What `batch.check` says of a batch whose place and size are known; notes what its header says."""
    cdef const unsigned char* data = batch.data
    cdef long long size = batch.size
    cdef int count, codec
    if size < HEADER_BYTES or u32(data + 8) != size - PREFIX_BYTES or data[16] != MAGIC or i64(data):
        return False
    batch.attributes = i16(data + 21)
    batch.last_delta = <int> u32(data + 23)
    batch.base_timestamp = i64(data + 27)
    batch.max_timestamp = i64(data + 35)
    batch.producer_id = i64(data + 43)
    batch.producer_epoch = i16(data + 51)
    batch.sequence = <int> u32(data + 53)
    count, codec = <int> u32(data + 57), batch.attributes & CODEC
    if count <= 0 or batch.last_delta != count - 1 or batch.attributes & REFUSED or codec > LAST_CODEC:
        return False
    if not codec and <long long> count * RECORD_BYTES_MIN > size - HEADER_BYTES:
        return False
    if batch.producer_id >= 0 and (batch.sequence < 0 or batch.producer_epoch < 0):
        return False
    covered = PyMemoryView_FromMemory(<char*> data + CRC_START, size - CRC_START, PyBUF_READ)
    return <unsigned int> crc32c(covered) == u32(data + 17)


cdef class Requests:
    """What requests have in common: those of one client for one topic, with the same acks and timeout."""

    def __init__(self, lead, bytes head, bytes common, bytes answer_begin, bytes answer_end, bint is_flexible):
        self.acks = lead.acks  # The lead itself is not kept: it keeps this, and nothing else would end the two.
        self._head, self._common = head, common
        self._topic, self._is_flexible = lead.topic, is_flexible
        self._answer_begin, self._answer_end = answer_begin, answer_end
        self._outcome_end = stored_layout(lead.version)[1]

    cdef bint match(self, object frame, int* correlation_id) except -1:
        """Whether a request is one of these; then its correlation id is noted."""
        if not isinstance(frame, memoryview):
            raise TypeError("a request lies in a buffer that its batches get their offsets written into")
        cdef Py_buffer* buffer = PyMemoryView_GET_BUFFER(frame)
        cdef const unsigned char* data = <const unsigned char*> buffer.buf
        cdef Py_ssize_t common = PyBytes_GET_SIZE(self._common)
        if buffer.len < CORRELATION_END + common or memcmp(data, PyBytes_AS_STRING(self._head), HEAD_BYTES):
            return False
        correlation_id[0] = <int> u32(data + HEAD_BYTES)
        return not memcmp(data + CORRELATION_END, PyBytes_AS_STRING(self._common), common)

    cdef int read(self, object frame, Batches batches) except -2:
        """Add the batches of a request that matches; how many it has, or -1, and none is added, if not all are plain."""
        cdef Py_buffer* buffer = PyMemoryView_GET_BUFFER(frame)
        cdef const unsigned char* data = <const unsigned char*> buffer.buf + CORRELATION_END + len(self._common)
        cdef const unsigned char* end = <const unsigned char*> buffer.buf + buffer.len
        cdef int before = batches.count
        cdef bint is_plain
        if self._is_flexible:
            is_plain = self._read_flexible(data, end, batches)
        else:
            is_plain = self._read_classic(data, end, batches)
        if not is_plain:
            batches.count = before
            return -1
        batches._frames.append(frame)
        return batches.count - before

    def found(self, frame):
        """Correlation id, and for each batch its partition and its bytes; None if nothing is read. For tests."""
        cdef int correlation_id, number
        cdef Batches batches = Batches()
        if not self.match(frame, &correlation_id) or self.read(frame, batches) < 0:
            return None
        return correlation_id, [(batches.at[n].partition, bytes(batches.view(n))) for n in range(batches.count)]

    cdef bint _read_flexible(self, const unsigned char* at, const unsigned char* end, Batches batches) except -1:
        cdef long long count = varint(&at, end), length
        cdef int number
        cdef Batch* batch
        end -= 2
        if count < 2 or count > PARTITIONS_MAX or at > end or end[0] or end[1]:
            return False
        for number in range(<int> count - 1):
            if end - at < INDEX_BYTES:
                return False
            batch = batches.add()
            batch.partition, at = <int> u32(at), at + INDEX_BYTES
            length = varint(&at, end)
            if length < 2 or length > end - at or at[length - 1]:
                return False
            batch.data, batch.size = <unsigned char*> at, length - 1
            if not may_be_stored(batch):
                return False
            at += length
        return at == end

    cdef bint _read_classic(self, const unsigned char* at, const unsigned char* end, Batches batches) except -1:
        cdef int count, number, size
        cdef Batch* batch
        if end - at < INDEX_BYTES:
            return False
        count, at = <int> u32(at), at + INDEX_BYTES
        if count < 1 or count > PARTITIONS_MAX:
            return False
        for number in range(count):
            if end - at < 2 * INDEX_BYTES:
                return False
            batch = batches.add()
            batch.partition, size, at = <int> u32(at), <int> u32(at + INDEX_BYTES), at + 2 * INDEX_BYTES
            if size <= 0 or size > end - at:
                return False
            batch.data, batch.size = <unsigned char*> at, size
            if not may_be_stored(batch):
                return False
            at += size
        return at == end

    cdef bytes answer(self, int correlation_id, const int* partitions, const long long* offsets, int count):
        """What `Lead.answer` says, behind its size: for each partition its number, and in `offsets` where its batch
        and its log begin.
        """
        cdef bytes start = topic_start(self._topic, count, self._is_flexible)
        cdef Py_ssize_t size = SIZE_BYTES + 4 + len(self._answer_begin) + len(start) + len(self._answer_end)
        cdef int number
        size += count * (OUTCOME_BYTES + <Py_ssize_t> len(self._outcome_end))
        cdef bytes made = PyBytes_FromStringAndSize(NULL, size)
        cdef unsigned char* at = <unsigned char*> PyBytes_AS_STRING(made)
        at = put_number(put_number(at, size - SIZE_BYTES, SIZE_BYTES), <unsigned int> correlation_id, 4)
        at = put_bytes(put_bytes(at, self._answer_begin), start)
        for number in range(count):
            at = put_number(put_number(at, <unsigned int> partitions[number], 4), 0, 2)
            at = put_number(put_number(at, <unsigned long long> offsets[2 * number], 8), <unsigned long long> NO_TIME, 8)
            at = put_bytes(put_number(at, <unsigned long long> offsets[2 * number + 1], 8), self._outcome_end)
        put_bytes(at, self._answer_end)
        return made
