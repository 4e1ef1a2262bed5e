# What `produced.pyx` offers to other compiled modules.

cdef struct Batch:
    unsigned char* data
    long long size
    long long base_timestamp
    long long max_timestamp
    long long producer_id
    int partition
    int attributes
    int last_delta
    int producer_epoch
    int sequence
    int next


cdef inline unsigned char* put_number(unsigned char* at, unsigned long long number, int size) noexcept:
    """Write a number as the wire and the log have it; the place behind it."""
    cdef int place
    for place in range(size):
        at[place] = <unsigned char> (number >> 8 * (size - 1 - place))
    return at + size


cdef class Batches:
    cdef Batch* at
    cdef readonly int count
    cdef int _room
    cdef list _frames

    cdef Batch* add(self) except NULL
    cdef object view(self, int number)
    cdef object views(self, int first)


cdef class Requests:
    cdef int acks
    cdef bytes _head
    cdef bytes _common
    cdef bytes _answer_begin
    cdef bytes _answer_end
    cdef bytes _outcome_end
    cdef object _topic
    cdef bint _is_flexible

    cdef bint match(self, object frame, int* correlation_id) except -1
    cdef int read(self, object frame, Batches batches) except -2
    cdef bint _read_flexible(self, const unsigned char* at, const unsigned char* end, Batches batches) except -1
    cdef bint _read_classic(self, const unsigned char* at, const unsigned char* end, Batches batches) except -1
    cdef bytes answer(self, int correlation_id, const int* partitions, const long long* offsets, int count)
