"""Test your own error handling: make the embedded controller fail on purpose.

What it shows: ``aiougds.testing``, and what to do about a media error, one that is not
to be tried again, and a device that takes too long.

``python fault_injection.py``. You see what each call was told, and that no memory is
left in quarantine. ``pytest_fixture.py`` makes tests of it.
"""

from __future__ import annotations

import asyncio

import aiougds
from aiougds import testing

UNRECOVERED_READ = 0x81  # of status code type 2, media errors


async def read_with_retry(
    ns: aiougds.Namespace, buf: aiougds.Registration, *, offset: int, tries: int = 3
) -> int:
    """Read; try again after a media error, but not where the drive says: do not."""
    for attempt in range(1, tries + 1):
        try:
            return await ns.read(buf, offset=offset)
        except aiougds.MediaError as error:
            print(f"  try {attempt}: {error}")
            if error.dnr or attempt == tries:
                raise
    raise AssertionError("unreachable")


async def main() -> None:
    async with aiougds.open("emu:?size=1MiB") as ns, ns.allocate(4096) as reg:
        print("two media errors, then success:")
        fault = testing.Fault.status("read", sct=2, sc=UNRECOVERED_READ, count=2)
        with testing.inject(ns, fault) as handle:
            n = await read_with_retry(ns, reg, offset=0)
        print(f"  {n} bytes after {handle.hits} failures")

        print("an error that is not to be retried:")
        with testing.inject(
            ns, testing.Fault.status("read", sct=2, sc=UNRECOVERED_READ, dnr=True)
        ):
            try:
                await read_with_retry(ns, reg, offset=0)
            except aiougds.MediaError:
                print("  given up at once")

        print("a device that takes too long:")
        with testing.inject(ns, testing.Fault.hold("read")):
            try:
                await ns.read(reg, offset=0, timeout_s=0.05)
            except TimeoutError as error:
                print(f"  {error}")
        # The device may still write there: the memory is in quarantine until the
        # late answer has come, or the controller is reset.
        await ns.controller.reset()
        print(f"  after a reset, in quarantine: {len(ns.controller.quarantine)}")
        assert testing.counters(ns).iommu_faults == 0


if __name__ == "__main__":
    asyncio.run(main())
