"""How many bytes to write so that a device's caches hold nothing of a call's inputs."""

from __future__ import annotations

from typing import Any

_L2_FLUSH_BYTES = 256 << 20


def flush_size(stated: int | None, properties: Any) -> int:
    """Bytes to write so that nothing of the inputs is left in a device's caches.

    `stated` by the GPU type; else twice the size of the L2 cache by the driver, and at least a size that is larger than
    most caches. Never more than an eighth of the device's memory.
    """
    known = max(_L2_FLUSH_BYTES, 2 * int(getattr(properties, "L2_cache_size", 0) or 0))
    wanted = known if stated is None else stated
    return min(wanted, int(properties.total_memory) // 8)
