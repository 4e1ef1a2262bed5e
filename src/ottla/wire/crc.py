"""CRC-32C (Castagnoli), the checksum of record batches.

The `crc32c` package reads any contiguous buffer in place, writable memoryviews of a receive buffer too, and lets other
threads run while it works on 32 KiB or more. `google-crc32c` takes `bytes` alone, so every produced batch would be
copied once to be checked.
"""

from __future__ import annotations

from crc32c import crc32c

__all__ = ["crc32c"]
