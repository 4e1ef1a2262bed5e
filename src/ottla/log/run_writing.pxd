# What `run_writing.pyx` offers to other compiled modules.

from ottla.wire.produced cimport Batches


cdef object append_run(log, Batches batches, int first, int leader_epoch)
