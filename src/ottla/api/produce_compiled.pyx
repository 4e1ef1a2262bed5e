"""Produce requests with much in them, compiled: what `produce_ahead.ProduceGroup` does, and by its rules.

Theory of operation. The batches of a group are read into one array (`wire.produced`), those of a partition are chained
to a run, each run is written (`runtime.partition_runs`), and the answers are made of the offsets. There is no Python
object for a batch, a header or an outcome unless an answer has to wait for followers.

What an editor must keep true: what `produce_ahead` says, to the letter. Both are held to the same tests.
"""

from libc.limits cimport LLONG_MAX

from ottla.api.produce import ACKS_ALL, PRODUCE, context_of, hold_answers
from ottla.api.produce_ahead import is_in_sync, lead_for, refused_write
from ottla.model.errors import OttlaError
from ottla.model.ids import NO_TIMESTAMP
from ottla.model.slots cimport get, slot_of
from ottla.runtime.opening import LOGS_INLINE_MAX
from ottla.runtime.partition import Partition
from ottla.runtime.partitions import HostedTopic
from ottla.wire.batch import TRANSACTIONAL_BIT, read_header, unassign
from ottla.wire.produce import stored_layout
from ottla.runtime.partition_runs cimport append_batches
from ottla.wire.produced cimport Batch, Batches, Requests

cdef extern from *:
    """
    #ifndef OTTLA_SOURCES
    #define OTTLA_SOURCES "unknown"
    #endif
    """
    const char* OTTLA_SOURCES

BUILT_FROM = OTTLA_SOURCES.decode()
"""Of which sources, see hatch_build.py."""

cdef int EVERYBODY = ACKS_ALL
cdef int TRANSACTIONAL = TRANSACTIONAL_BIT
cdef int UNOPENED_MAX = LOGS_INLINE_MAX
cdef enum:
    INLINE_OUTCOMES_MAX = 32
    SIZE_BYTES = 4

cdef Py_ssize_t TOPIC_CONFIG = slot_of(HostedTopic, "config")
cdef Py_ssize_t TOPIC_COUNTERS = slot_of(HostedTopic, "counters")
cdef Py_ssize_t TOPIC_IS_INTERNAL = slot_of(HostedTopic, "is_internal")
cdef Py_ssize_t TOPIC_IS_REWRITTEN = slot_of(HostedTopic, "is_rewritten")
cdef Py_ssize_t TOPIC_LED = slot_of(HostedTopic, "led")
cdef Py_ssize_t PARTITION_IS_SOLE = slot_of(Partition, "is_sole")
cdef Py_ssize_t PARTITION_LOG = slot_of(Partition, "log_or_none")


cdef class Run:
    """The batches of one partition."""

    cdef object partition
    cdef int first
    cdef int last
    cdef int request
    cdef long long size
    cdef long long records
    cdef long long next_offset
    cdef long long start_offset

    cdef bint is_sole(self) except -1:
        return get(self.partition, PARTITION_IS_SOLE)


cdef class Gathered:
    """A request: what it has in common with others, its topic, and its batches."""

    cdef object lead
    cdef Requests requests
    cdef int correlation_id
    cdef object topic
    cdef int first
    cdef int count
    cdef list runs


cdef class ProduceGroup:
    """Requests that are answered one after the other."""

    cdef object _services
    cdef object _caller
    cdef Batches _batches
    cdef list _gathered
    cdef dict _runs
    cdef int _unopened
    cdef bint _is_written

    def __init__(self, services, caller, frames):
        """Write what the requests bring, as far as that is plain."""
        self._services, self._caller = services, caller
        self._batches, self._gathered, self._runs = Batches(), [], {}
        self._unopened = 0
        now_ms = services.world.clock.now_ms()
        for frame in frames:
            if not services.is_ready or not self._gather(frame, now_ms):
                break
        self._is_written = self._write_all() if self._gathered else False

    cdef bint _gather(self, frame, long long now_ms) except -1:
        """Chain the batches of a request to those of their partitions; False if not all of them are plain."""
        cdef Gathered gathered = Gathered.__new__(Gathered)
        lead = self._lead_of(frame, &gathered.correlation_id)
        if lead is None:
            return False
        topic = self._services.partitions.find(lead.topic)
        if topic is None or get(topic, TOPIC_IS_INTERNAL) or get(topic, TOPIC_IS_REWRITTEN):
            return False
        gathered.lead, gathered.requests = lead, <Requests> lead.requests
        gathered.topic, gathered.first = topic, self._batches.count
        gathered.count, gathered.runs = gathered.requests.read(frame, self._batches), []
        if gathered.count < 0 or not self._place(gathered, now_ms):
            return False
        self._gathered.append(gathered)
        return True

    cdef object _lead_of(self, frame, int* correlation_id):
        """What a request has in common with those before it, or with those behind it; None if nothing is known."""
        caller = self._caller
        lead = caller.produce_lead
        if lead is None or not (<Requests> lead.requests).match(frame, correlation_id):
            lead = lead_for(caller, frame)
            if lead is None or not (<Requests> lead.requests).match(frame, correlation_id):
                return None
        return lead

    cdef bint _place(self, Gathered gathered, long long now_ms) except -1:
        """Find the run of each batch; False, and none has got one, if serving the request would not write them all."""
        cdef Batch* batch
        cdef int number, request = len(self._gathered)
        cdef Run run
        topic = gathered.topic
        config, behind, led = get(topic, TOPIC_CONFIG), self._services.appender.tails, get(topic, TOPIC_LED)
        if config.timestamp_type_log_append:
            return False
        cdef long long bytes_max = config.max_message_bytes, before_max_ms = config.timestamp_before_max_ms
        cdef long long after_max_ms = config.timestamp_after_max_ms, min_insync = config.min_insync_replicas
        cdef long long timestamp_min = now_ms - before_max_ms
        cdef long long timestamp_max = LLONG_MAX if after_max_ms > LLONG_MAX - now_ms else now_ms + after_max_ms
        cdef bint needs_followers = gathered.requests.acks == EVERYBODY
        for number in range(gathered.first, gathered.first + gathered.count):
            batch = self._batches.at + number
            run = self._run_of(led, batch.partition, behind)
            if (
                run is None
                or run.request == request
                or batch.attributes & TRANSACTIONAL
                or batch.max_timestamp > timestamp_max
                or batch.base_timestamp < timestamp_min
                or batch.size > bytes_max
                or (needs_followers and not run.is_sole() and not is_in_sync(run.partition, min_insync))
            ):
                return False
            run.request = request
            gathered.runs.append(run)
        if self._unopened > UNOPENED_MAX:
            return False
        self._chain(gathered)
        return True

    cdef Run _run_of(self, list led, int index, dict behind):
        """The run of a partition, which begins with this if need be; None if nothing may be written to it now."""
        cdef Run run
        partition = led[index] if 0 <= index < len(led) else None
        if partition is None:
            return None
        found = self._runs.get(partition)
        if found is not None:
            return <Run> found
        if behind and partition in behind:
            return None
        if get(partition, PARTITION_LOG) is None:
            self._unopened += 1
        run = self._runs[partition] = Run.__new__(Run)
        run.partition = partition
        run.first = run.last = run.request = -1
        run.next_offset = run.start_offset = -1
        return run

    cdef void _chain(self, Gathered gathered) noexcept:
        cdef int number
        cdef Batch* batch
        cdef Run run
        for number in range(gathered.first, gathered.first + gathered.count):
            batch, run = self._batches.at + number, <Run> gathered.runs[number - gathered.first]
            batch.next = -1
            if run.first < 0:
                run.first = number
            else:
                self._batches.at[run.last].next = number
            run.last = number
            run.size += batch.size
            run.records += <long long> batch.last_delta + 1

    cdef bint _write_all(self) except -1:
        """Whether everything is in the log. If not, what is will be found by who serves the requests."""
        cdef Run run
        cdef bint is_written = True
        for run in self._runs.values():
            if run.first >= 0 and not self._write(run):
                is_written = False
        if not is_written:
            for run in self._runs.values():
                if run.next_offset >= 0:
                    headers = [read_header(view) for view in self._batches.views(run.first)]
                    self._services.appender.hand_over(run.partition, run.next_offset, headers)
        return is_written

    cdef bint _write(self, Run run) except -1:
        partition, base_offset = run.partition, None
        try:
            base_offset = append_batches(partition, self._batches, run.first, run.records, run.size)
        except OttlaError as error:
            refused_write(self._services, error)
        if base_offset is None:
            for view in self._batches.views(run.first):
                unassign(view)
            return False
        run.next_offset = base_offset
        run.start_offset = get(partition, PARTITION_LOG).log_start_offset
        return True

    def has(self, int number):
        """Whether something of a request may be written already, so that it has to be answered or served now."""
        return number < len(self._gathered)

    def answers(self, int count):
        """The answers to so many requests, each behind its size; None if one is to be served, or has to wait."""
        cdef int number
        if not self._is_written or len(self._gathered) < count:
            return None
        for number in range(count):
            if not self._is_inline(<Gathered> self._gathered[number]):
                return None
        if count == 1:
            return self._answer_inline(<Gathered> self._gathered[0])
        return b"".join([self._answer_inline(gathered) for gathered in self._gathered[:count]])

    def answer(self, int number):
        """The answer to a request; None if the ordinary way has to serve it."""
        cdef Gathered gathered
        if not self._is_written or number >= len(self._gathered):
            return None
        gathered = <Gathered> self._gathered[number]
        if self._is_inline(gathered):
            return [self._answer_inline(gathered)[SIZE_BYTES:]]
        return self._answer_interpreted(gathered)

    cdef bint _is_inline(self, Gathered gathered) except -1:
        """Whether an answer has few partitions, and none that followers may have to be waited for."""
        cdef Run run
        if gathered.count > INLINE_OUTCOMES_MAX:
            return False
        if gathered.requests.acks != EVERYBODY:
            return True
        for run in gathered.runs:
            if not run.is_sole():
                return False
        return True

    cdef bytes _answer_inline(self, Gathered gathered):
        cdef int[INLINE_OUTCOMES_MAX] partitions
        cdef long long[2 * INLINE_OUTCOMES_MAX] offsets
        cdef int place
        cdef Batch* batch
        cdef Run run
        for place in range(gathered.count):
            run, batch = <Run> gathered.runs[place], self._batches.at + gathered.first + place
            partitions[place] = batch.partition
            offsets[2 * place], offsets[2 * place + 1] = run.next_offset, run.start_offset
            run.next_offset += <long long> batch.last_delta + 1
        self._count(gathered)
        return gathered.requests.answer(gathered.correlation_id, partitions, offsets, gathered.count)

    cdef int _count(self, Gathered gathered) except -1:
        get(gathered.topic, TOPIC_COUNTERS).produce_requests += gathered.count
        self._services.metrics.requests[PRODUCE] += 1
        return 0

    cdef object _answer_interpreted(self, Gathered gathered):
        """The same, where followers may have to be waited for, or there are many partitions."""
        cdef Run run
        cdef int place = gathered.first
        lead = gathered.lead
        self._count(gathered)
        stored, rest = stored_layout(lead.version)
        waits = gathered.requests.acks == EVERYBODY
        outcomes, unreplicated = [], []
        for run in gathered.runs:
            partition, base_offset = run.partition, run.next_offset
            run.next_offset += <long long> self._batches.at[place].last_delta + 1
            if waits and not run.is_sole() and partition.high_watermark < run.next_offset:
                unreplicated.append((lead.topic, outcomes, len(outcomes), partition, run.next_offset))
            outcomes.append(stored(partition.index, 0, base_offset, NO_TIMESTAMP, run.start_offset, rest))
            place += 1
        if unreplicated:
            context = context_of(self._services, self._caller, lead.version, gathered.correlation_id)
            return hold_answers(context, lead.timeout_ms, [(lead.topic, outcomes)], unreplicated, failed=False)
        return [lead.answer(gathered.correlation_id, outcomes)]

    def close(self):
        """All requests were answered or served, or never will be."""
        if not self._is_written:
            self._services.appender.forget_ahead()
