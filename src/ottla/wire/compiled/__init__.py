"""Record work in machine code: for the record worker and the Spark source, never for the broker's own process.

Its modules import numba, which costs half a second and 100 MB. Kernels take numpy arrays, check every length before
they follow it, and let go of the interpreter lock.

| module | what it does |
|---|---|
| `memory`  | unaligned loads, copies and comparisons that numba has no name for |
| `records` | a batch's body into columns (`parse_records`), or a verdict on it (`check_records`) |
| `keys`    | the exact map from a key to its latest offset |
| `batches` | many batches at a time: find them, parse them, write what is left of them |
| `columns` | fetched batches into the columns of a table |
| `encoding` | the rows of a table into records, and their partitions |
| `varints` | zigzag varints by address |
| `cache`   | where the machine code is kept between runs |

Machine code is kept between runs under a name that the sources of all kernels decide, since numba itself would not
notice that a kernel in another file changed.
"""

from ottla.wire.compiled.cache import use_kernel_cache

use_kernel_cache()
