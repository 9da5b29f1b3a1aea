"""Every status that a controller answers with becomes one exception that says all."""

from __future__ import annotations

import errno
import pickle

import pytest
from life.conftest import Live
from life.live import BLOCK, pattern

from aiougds import CompareError, MediaError, NVMeError, UGDSError
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.anyio

# type, code, errno, what it is called
STATUSES = [
    (0, 0x01, errno.EOPNOTSUPP, "Invalid Command Opcode"),
    (0, 0x02, errno.EINVAL, "Invalid Field in Command"),
    (0, 0x03, errno.EIO, "Command ID Conflict"),
    (0, 0x04, errno.EFAULT, "Data Transfer Error"),
    (0, 0x05, errno.ECANCELED, "Power Loss"),
    (0, 0x06, errno.EIO, "Internal Error"),
    (0, 0x07, errno.ECANCELED, "Abort Requested"),
    (0, 0x08, errno.ECANCELED, "SQ Deletion"),
    (0, 0x0B, errno.ENXIO, "Invalid Namespace or Format"),
    (0, 0x13, errno.EFAULT, "PRP Offset Invalid"),
    (0, 0x15, errno.EPERM, "Operation Denied"),
    (0, 0x1D, errno.EBUSY, "Sanitize In Progress"),
    (0, 0x20, errno.EROFS, "Write Protected"),
    (0, 0x21, errno.EAGAIN, "Command Interrupted"),
    (0, 0x22, errno.EAGAIN, "Transient Transport Error"),
    (0, 0x80, errno.ERANGE, "LBA Out of Range"),
    (0, 0x81, errno.ENOSPC, "Capacity Exceeded"),
    (0, 0x82, errno.EAGAIN, "Namespace Not Ready"),
    (0, 0x83, errno.EBUSY, "Reservation Conflict"),
    (0, 0x84, errno.EBUSY, "Format In Progress"),
    (0, 0xBF, errno.EIO, "generic status 0xbf"),
    (1, 0x80, errno.EINVAL, "Conflicting Attributes"),
    (1, 0x81, errno.EINVAL, "Invalid Protection Information"),
    (1, 0x82, errno.EROFS, "Read Only Range"),
    (1, 0xEE, errno.EIO, "command specific status 0xee"),
    (2, 0x80, errno.EIO, "Write Fault"),
    (2, 0x81, errno.EIO, "Unrecovered Read Error"),
    (2, 0x82, errno.EIO, "Guard Check Error"),
    (2, 0x83, errno.EIO, "Application Tag Check Error"),
    (2, 0x84, errno.EIO, "Reference Tag Check Error"),
    (2, 0x85, errno.EILSEQ, "Compare Failure"),
    (2, 0x86, errno.EACCES, "Access Denied"),
    (2, 0x87, errno.ENODATA, "Unwritten Logical Block"),
    (2, 0xFE, errno.EIO, "media error 0xfe"),
    (3, 0x00, errno.EIO, "Internal Path Error"),
    (3, 0x02, errno.EAGAIN, "Asymmetric Access Inaccessible"),
    (3, 0x71, errno.EIO, "Command Aborted By Host"),
    (5, 0x01, errno.EIO, "reserved status type 0x01"),
    (7, 0x33, errno.EIO, "vendor specific status 0x33"),
]


@pytest.mark.parametrize("dnr", [False, True], ids=["", "dnr"])
async def test_every_status_of_a_read(live: Live, dnr: bool) -> None:
    async with live() as ns, ns.allocate(BLOCK) as reg:
        for number, (sct, sc, errno_, name) in enumerate(STATUSES, 1):
            fault = Fault.status("read", sct=sct, sc=sc, dnr=dnr, count=1)
            with inject(ns, fault) as injected:
                with pytest.raises(NVMeError) as failed:
                    await ns.read(reg, offset=5 * BLOCK)
                assert injected.hits == 1
            error = failed.value
            kind = (
                CompareError
                if (sct, sc) == (2, 0x85)
                else MediaError
                if sct == 2
                else NVMeError
            )
            assert type(error) is kind, name
            assert (error.sct, error.sc, error.dnr) == (sct, sc, dnr), name
            assert error.errno == errno_, name
            assert error.command == "read"
            assert error.offset == 5 * BLOCK
            assert error.bytes_done == 0
            assert name in str(error)
            assert "read at byte 20480 failed" in str(error)
            assert ("do not retry" in str(error)) is dnr
            assert ns.controller.statistics().errors == number
        # The device is well, and so is everything else.
        assert ns.controller.state == "live"
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
