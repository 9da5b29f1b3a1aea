"""Read from plain threads, without an event loop.

What it shows: ``aiougds.blocking``, which has the same calls. A namespace and a
registration may be used by all threads; each gets a queue pair of its own at its first
operation.

``python blocking_threads.py``. You see what the threads have read.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from aiougds import blocking

THREADS = 4
PART = 1 << 20


def main() -> None:
    with (
        blocking.open(f"emu:?size={THREADS * PART}") as ns,
        ns.allocate(THREADS * PART) as reg,
    ):
        together = threading.Barrier(THREADS)

        def work(i: int) -> int:
            part = reg[i * PART : (i + 1) * PART]
            part.view[:] = bytes([i + 1]) * PART
            together.wait()
            ns.write(part, offset=i * PART)
            part.view[:] = bytes(PART)
            return ns.read(part, offset=i * PART)

        with ThreadPoolExecutor(THREADS) as pool:
            total = sum(pool.map(work, range(THREADS)))
        for i in range(THREADS):
            if reg.view[i * PART : (i + 1) * PART] != bytes([i + 1]) * PART:
                raise SystemExit(f"thread {i} read something else")
    print(f"{THREADS} threads read {total} bytes")


if __name__ == "__main__":
    main()
