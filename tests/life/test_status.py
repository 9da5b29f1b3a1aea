"""Every status that a controller answers with becomes one exception that says all."""

from __future__ import annotations

import errno
import pickle
from itertools import product
from typing import Final

import pytest
from life.conftest import Live
from life.live import BLOCK, pattern

from aiougds import (
    CompareError,
    MediaError,
    NVMeError,
    PathError,
    RangeError,
    UGDSError,
)
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.anyio

# What a status becomes; every other one is EIO.
ERRNOS: Final[dict[int, dict[int, str]]] = {
    errno.EOPNOTSUPP: {0: "01 1F", 1: "0D 1B 28 29 2A"},
    errno.EINVAL: {
        0: "02 0A 0C 0D 0E 0F 10 11 12 14 18 1A 1E",
        1: "00 01 02 06 07 08 09 0A 0F 14 1C 1F 20 21 22 24 2B 2C 80 81 83 B8 BC BF",
    },
    errno.EFAULT: {0: "04 13 16"},
    errno.ECANCELED: {0: "05 07 08 09 1B", 3: "71"},
    errno.ENXIO: {0: "0B", 1: "1A"},
    errno.EPERM: {0: "15 23", 1: "0E 13 19 23"},
    errno.ETIME: {0: "19", 1: "12"},
    errno.EBUSY: {0: "1C 1D 83 84", 1: "0C 1D BD BE"},
    errno.EROFS: {0: "20", 1: "1E 82 BA"},
    errno.EAGAIN: {0: "21 22 24 82", 1: "03 05 0B 10 11", 3: "02 03"},
    errno.ERANGE: {0: "80"},
    errno.ENOSPC: {0: "81", 1: "15 16 26 27 2D B9"},
    errno.EEXIST: {1: "18"},
    errno.EILSEQ: {2: "85"},
    errno.EACCES: {2: "86"},
    errno.ENODATA: {2: "87"},
}
EXPECTED: Final = {
    (sct, int(sc, 16)): number
    for number, types in ERRNOS.items()
    for sct, codes in types.items()
    for sc in codes.split()
}
# Some of the names, from the specification.
NAMES: Final = {
    (0, 0x01): "Invalid Command Opcode",
    (0, 0x05): "Power Loss",
    (0, 0x21): "Command Interrupted",
    (0, 0x80): "LBA Out of Range",
    (0, 0xBF): "generic status 0xbf",
    (1, 0x29): "I/O Command Set Not Supported",
    (1, 0x82): "Read Only Range",
    (1, 0xB9): "Zone Is Full",
    (1, 0xEE): "command specific status 0xee",
    (2, 0x80): "Write Fault",
    (2, 0x81): "Unrecovered Read Error",
    (2, 0x87): "Unwritten Logical Block",
    (2, 0xFE): "media error 0xfe",
    (3, 0x02): "Asymmetric Access Inaccessible",
    (3, 0x71): "Command Aborted By Host",
    (4, 0x01): "reserved status type 0x01",
    (6, 0xFF): "reserved status type 0xff",
    (7, 0x33): "vendor specific status 0x33",
}


def kind(sct: int, sc: int) -> type[NVMeError]:
    if (sct, sc) == (2, 0x85):
        return CompareError
    return {2: MediaError, 3: PathError}.get(sct, NVMeError)


@pytest.mark.few
async def test_every_status_there_can_be(live: Live) -> None:
    """All 2047 of them, known, reserved and vendor specific."""
    async with live() as ns, ns.allocate(BLOCK) as reg:
        failures = 0
        for sct, sc in product(range(8), range(256)):
            if not sct and not sc:
                continue
            # Do Not Retry and More take turns, so that each meets everything.
            dnr, more = bool(sc & 1) ^ bool(sct & 1), bool(sc & 2)
            fault = Fault.status("read", sct=sct, sc=sc, dnr=dnr, more=more, count=1)
            with inject(ns, fault) as injected, pytest.raises(NVMeError) as failed:
                await ns.read(reg, offset=5 * BLOCK)
            assert injected.hits == 1
            failures += 1
            error = failed.value
            what = f"type {sct}, code {sc:#04x}: {error}"
            assert type(error) is kind(sct, sc), what
            assert (error.sct, error.sc) == (sct, sc), what
            assert (error.dnr, error.more, error.crd) == (dnr, more, 0), what
            assert error.errno == EXPECTED.get((sct, sc), errno.EIO), what
            assert (error.command, error.offset) == ("read", 5 * BLOCK), what
            assert error.bytes_done == 0, what
            assert NAMES.get((sct, sc), "") in str(error), what
            assert "read at byte 20480 failed: " in str(error), what
            assert ("do not retry" in str(error)) is dnr, what
        assert ns.controller.statistics().errors == failures == 2047
        assert ns.controller.statistics().retries == 0
        # The device is well, and so is everything else.
        assert ns.controller.state == "live"
        assert await ns.read(reg, offset=5 * BLOCK) == BLOCK


@pytest.mark.parametrize("dnr", [False, True], ids=["", "dnr"])
async def test_a_media_error_of_a_read(live: Live, dnr: bool) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        fault = Fault.status("read", sct=2, sc=0x81, dnr=dnr, count=1)
        with inject(ns, fault), pytest.raises(MediaError) as failed:
            await ns.read(reg, offset=5 * BLOCK)
        assert failed.value.errno == errno.EIO
        assert failed.value.dnr is dnr
        assert failed.value.retry_after_s == 0
        assert await ns.read(reg, offset=5 * BLOCK) == BLOCK


@pytest.mark.parametrize(
    "name", ["write", "flush", "compare", "write_zeroes", "deallocate", "verify"]
)
@pytest.mark.few
async def test_every_command_can_fail(live: Live, name: str) -> None:
    at = 3 * BLOCK
    async with live() as ns, ns.allocate(BLOCK) as reg:
        call = {
            "write": lambda: ns.write(reg, offset=at),
            "flush": ns.flush,
            "compare": lambda: ns.compare(reg, offset=at),
            "write_zeroes": lambda: ns.write_zeroes(offset=at, nbytes=BLOCK),
            "deallocate": lambda: ns.deallocate(offset=at, nbytes=BLOCK),
            "verify": lambda: ns.verify(offset=at, nbytes=BLOCK),
        }[name]
        with (
            inject(ns, Fault.status(name, sct=0, sc=0x06, count=1)),
            pytest.raises(NVMeError, match=name) as failed,
        ):
            await call()
        assert failed.value.command == name
        assert failed.value.errno == errno.EIO
        await call()


async def test_errors_survive_pickling(live: Live) -> None:
    async with live() as ns:
        with (
            inject(ns, Fault.status("read", sct=2, sc=0x81, dnr=True)),
            pytest.raises(MediaError) as failed,
        ):
            await ns.read(bytearray(BLOCK), offset=BLOCK)
    error = pickle.loads(pickle.dumps(failed.value))
    assert type(error) is MediaError
    assert str(error) == str(failed.value)
    assert (error.errno, error.sct, error.sc, error.dnr) == (errno.EIO, 2, 0x81, True)
    assert (error.command, error.offset, error.bytes_done) == ("read", BLOCK, 0)
    assert isinstance(error, OSError)
    assert isinstance(error, UGDSError)


async def test_failure_in_the_middle_at_depth_one(live: Live) -> None:
    """One command at a time: what was moved is a prefix, and nothing more is sent."""
    size = 16 * BLOCK
    data = pattern(size)
    async with (
        live("mdts=1", depth=2, batch_depth=2, queues=2) as ns,
        ns.allocate(size) as reg,
    ):
        await ns.write(data, offset=0)
        before = ns.controller.statistics().commands
        # Commands of 8 KiB: the fourth is blocks 6 and 7.
        with (
            inject(ns, Fault.status("read", sct=2, sc=0x81).on(slba=7, nlb=1)),
            pytest.raises(MediaError) as failed,
        ):
            await ns.read(reg, offset=0)
        assert failed.value.bytes_done == 6 * BLOCK
        assert "after 24576 bytes" in str(failed.value)
        assert ns.controller.statistics().commands - before == 4
        assert reg.view[: 6 * BLOCK] == data[: 6 * BLOCK]
        assert reg.view[6 * BLOCK :] == bytes(10 * BLOCK)
        assert await ns.read(reg, offset=0) == size
        assert reg.view[:] == data


async def test_failure_in_the_middle_at_depth(live: Live) -> None:
    """The others were sent already; every byte that is counted was moved."""
    size = 64 * BLOCK
    data = pattern(size)
    async with live("mdts=1") as ns, ns.allocate(size) as reg:
        await ns.write(data, offset=0)
        with inject(ns, Fault.status("read", sct=2, sc=0x81).on(slba=30, nlb=3)) as bad:
            with pytest.raises(MediaError) as failed:
                await ns.read(reg, offset=0)
            assert bad.hits == 2  # blocks 30-31 and 32-33
        moved = sum(
            reg.view[at : at + 512] == data[at : at + 512] for at in range(0, size, 512)
        )
        assert failed.value.bytes_done == moved * 512
        assert failed.value.bytes_done <= size - 4 * BLOCK
        assert ns.controller.statistics().errors == 2
        assert ns.controller.statistics().inflight == 0


async def test_compare_says_that_it_differs(live: Live) -> None:
    data = pattern(4 * BLOCK)
    async with live() as ns, ns.allocate(4 * BLOCK) as reg:
        await ns.write(data, offset=0)
        reg.view[:] = data
        assert await ns.compare(reg, offset=0) == 4 * BLOCK
        reg.view[3 * BLOCK + 17] ^= 1
        with pytest.raises(CompareError) as differs:
            await ns.compare(reg, offset=0)
        assert differs.value.errno == errno.EILSEQ
        assert (differs.value.sct, differs.value.sc) == (2, 0x85)
        assert await ns.compare(reg[: 3 * BLOCK], offset=0) == 3 * BLOCK


async def test_a_refusal_is_not_taken_for_the_failure_before_it(live: Live) -> None:
    """Both have errno ERANGE: one from the device, the next without asking it."""
    async with live() as ns, ns.allocate(BLOCK) as reg:
        for _ in range(2):
            with (
                inject(ns, Fault.status("read", sc=0x80, count=1)),
                pytest.raises(NVMeError, match="LBA Out of Range"),
            ):
                await ns.read(reg, offset=0)
            with pytest.raises(RangeError, match="past the end"):
                await ns.read(reg, offset=ns.size)
