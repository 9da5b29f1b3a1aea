"""Test your own code against a device that fails on purpose, with pytest.

What it shows: a fixture that gives each test an embedded controller of its own, in
memory, and looks at the end whether the device did anything it should not have; and
``aiougds.testing``, which makes reads fail, wait or lose the power. No drive, no root.

``pytest pytest_fixture.py`` (or copy it as ``test_....py``; needs pytest and anyio,
whose plugin runs the tests on asyncio). You see four tests pass. Your code is in the
place of ``Records``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

import aiougds
from aiougds import testing

# ---- the code under test ----


@dataclass
class Records:
    """Records of a block each; a read that failed for the medium is tried again."""

    ns: aiougds.Namespace
    tries: int = 3

    async def put(self, number: int, text: str) -> None:
        """Store a record, durably."""
        async with self.ns.allocate(4096) as reg:
            data = text.encode()
            reg.view[: len(data)] = data
            await self.ns.write(reg, offset=number * 4096, fua=True)

    async def get(self, number: int, *, timeout_s: float = 1.0) -> str:
        """Return a record."""
        async with self.ns.allocate(4096) as reg:
            for left in reversed(range(self.tries)):
                try:
                    await self.ns.read(reg, offset=number * 4096, timeout_s=timeout_s)
                    break
                except aiougds.MediaError as error:
                    if error.dnr or not left:
                        raise
            return bytes(reg.view).rstrip(b"\0").decode()


# ---- the fixture ----


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def ns(anyio_backend: str) -> AsyncIterator[aiougds.Namespace]:
    """Return a namespace of 1 MiB, whose power can be cut."""
    async with aiougds.open("emu:?size=1MiB&volatile=1", cancel_grace_s=0.1) as opened:
        yield opened
        # What timed out and was never answered is in quarantine until a reset.
        if opened.controller.quarantine:
            await opened.controller.reset()
        seen = testing.counters(opened)
        assert seen.iommu_faults == seen.protocol_errors == 0


# ---- the tests ----


@pytest.mark.anyio
async def test_media_errors_are_tried_again(ns: aiougds.Namespace) -> None:
    records = Records(ns)
    await records.put(3, "three")
    fault = testing.Fault.status("read", sct=2, sc=0x81, count=2)
    with testing.inject(ns, fault) as handle:
        assert await records.get(3) == "three"
    assert handle.hits == 2


@pytest.mark.anyio
async def test_what_is_not_to_be_tried_again_is_not(ns: aiougds.Namespace) -> None:
    fault = testing.Fault.status("read", sct=2, sc=0x81, dnr=True)
    with testing.inject(ns, fault) as handle, pytest.raises(aiougds.MediaError):
        await Records(ns).get(3)
    assert handle.hits == 1


@pytest.mark.anyio
async def test_a_device_that_does_not_answer_is_waited_for_so_long_only(
    ns: aiougds.Namespace,
) -> None:
    with testing.inject(ns, testing.Fault.drop("read")):
        # Leaving the memory's ``async with`` says that the device still holds it.
        with pytest.raises(aiougds.RegistrationBusyError) as caught:
            await Records(ns).get(3, timeout_s=0.05)
        assert isinstance(caught.value.__context__, TimeoutError)


@pytest.mark.anyio
async def test_records_survive_a_power_cut(ns: aiougds.Namespace) -> None:
    records = Records(ns)
    await records.put(3, "three")
    testing.power_cut(ns)
    await ns.controller.reset()
    assert await records.get(3) == "three"
