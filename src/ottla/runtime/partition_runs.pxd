# What `partition_runs.pyx` offers to other compiled modules.

from ottla.wire.produced cimport Batches


cdef object append_batches(partition, Batches batches, int first, long long records, long long size)
