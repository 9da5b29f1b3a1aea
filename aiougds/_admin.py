"""Admin commands: passthrough, Identify, and the log pages that are decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiougds._errors import CapabilityError, OptionError, RangeError, UGDSError
from aiougds._failure import Request, ended, refused
from aiougds._ffi import NULL, PENDING, ffi, lib
from aiougds._status import status_name

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from aiougds._device import Device
    from aiougds._ffi import CData

MAX_DATA: Final = 65536
GET_LOG_PAGE: Final = 0x02
IDENTIFY: Final = 0x06
REFUSED: Final = {
    0x00: "Delete I/O Submission Queue",
    0x01: "Create I/O Submission Queue",
    0x04: "Delete I/O Completion Queue",
    0x05: "Create I/O Completion Queue",
    0x0C: "Asynchronous Event Request",
    0x7C: "Doorbell Buffer Config",
}
LOG_ERROR: Final = 0x01
LOG_SMART: Final = 0x02


@dataclass(frozen=True, slots=True, kw_only=True)
class SmartLog:
    """SMART / Health Information (NVMe base, clause 5.16.1.3)."""

    critical_warning: int
    """A bit for each warning; 0: none."""
    temperature_kelvin: int
    """Composite temperature."""
    available_spare_percent: int
    """Spare capacity that is left."""
    available_spare_threshold_percent: int
    """Below it the controller warns."""
    percentage_used: int
    """Estimate of the life used; may exceed 100."""
    data_units_read: int
    """In units of 512,000 bytes, rounded up."""
    data_units_written: int
    """In the same units."""
    host_reads: int
    """Read commands that completed."""
    host_writes: int
    """Write commands that completed."""
    controller_busy_minutes: int
    """With I/O commands under way."""
    power_cycles: int
    """How often power came."""
    power_on_hours: int
    """With power."""
    unsafe_shutdowns: int
    """Losses of power without a shutdown before."""
    media_errors: int
    """Unrecovered data integrity errors."""
    error_log_entries: int
    """Of the controller's life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLogEntry:
    """One entry of the Error Information log (NVMe base, clause 5.16.1.2)."""

    error_count: int
    """Number of the error, counted from the first one ever."""
    queue_id: int
    """Submission queue of the command."""
    command_id: int
    """Its identifier there (CID)."""
    status: int
    """Status field: type 10:8, code 7:0."""
    status_text: str
    """The specification's name of ``status``."""
    lba: int
    """First block that failed."""
    nsid: int
    """Namespace."""


class _Held:
    """What an admin command in flight keeps: freed when nobody needs it any more."""

    __slots__ = ("command", "ret")

    def __init__(self) -> None:
        self.command = ffi.new("struct ugds_admin_cmd *")
        self.ret = ffi.new("struct ugds_admin **")

    def mappings_on(self, device: Device) -> list[object]:
        """Admin data is copied: no memory of the user is busy."""
        return []

    def __del__(self) -> None:
        if self.ret[0] != NULL:
            lib.ugds_admin_free(self.ret[0])


async def admin(
    device: Device,
    opcode: int,
    *,
    nsid: int = 0,
    cdws: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0),
    data: Buffer | None = None,
    nbytes: int = 0,
) -> tuple[int, bytes]:
    """Send one admin command; returns dword 0 of its completion, and its data."""
    if opcode in REFUSED:
        raise CapabilityError(
            f"admin opcode {opcode:#04x} ({REFUSED[opcode]}) is the engine's own: it "
            "would pull queues from under operations in flight"
        )
    names = ("cdw10", "cdw11", "cdw12", "cdw13", "cdw14", "cdw15")
    values = dict(zip(names, cdws, strict=True), nsid=nsid)
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise OptionError(f"{name}={value!r}: an integer is needed")
        if not 0 <= value <= 0xFFFFFFFF:
            raise RangeError(f"{name}={value} is outside 0 .. 0xffffffff")
    if opcode not in range(0x100):
        raise RangeError(f"opcode={opcode!r} is not an integer in 0 .. 0xff")
    sent = b"" if data is None else bytes(data)
    size = len(sent) if data is not None else nbytes
    if not 0 <= size <= MAX_DATA:
        raise RangeError(f"{size} bytes of admin data are outside 0 .. {MAX_DATA}")
    held = _Held()
    command: CData = held.command
    command.opcode = opcode
    command.nbytes = size
    command.to_device = int(data is not None)
    for name, value in values.items():
        setattr(command, name, value)

    channel = device.channel()
    source = ffi.from_buffer(sent) if data is not None else NULL
    result = lib.ugds_admin_submit(channel.ptr, command, source, held.ret)
    request = Request(opcode, 0, size, size, 0, 1, 0)
    if result < 0:
        raise _described(refused(device, result, request), opcode)
    record = await channel.wait(result & (PENDING - 1), held)
    if record.result < 0:
        raise _described(ended(device, record, request), opcode)
    back = b""
    if size and data is None:
        buffer = bytearray(size)
        count = lib.ugds_admin_data(held.ret[0], ffi.from_buffer(buffer), size)
        back = bytes(buffer[: max(0, count)])
    return record.dw0, back


def _described(error: UGDSError, opcode: int) -> UGDSError:
    error.add_note(f"admin opcode {opcode:#04x}")
    return error


async def identify(device: Device, cns: int, nsid: int) -> bytes:
    """Return 4096 bytes of Identify data."""
    _, data = await admin(
        device, IDENTIFY, nsid=nsid, cdws=(cns, 0, 0, 0, 0, 0), nbytes=4096
    )
    return data


async def log_page(device: Device, page: int, nbytes: int, nsid: int) -> bytes:
    """Return the first bytes of a log page."""
    if nbytes % 4 or not 4 <= nbytes <= MAX_DATA:
        raise RangeError(
            f"nbytes={nbytes} of a log page is not a multiple of 4 in 4 .. {MAX_DATA}"
        )
    dwords = nbytes // 4 - 1
    cdw10 = page | (dwords & 0xFFFF) << 16
    _, data = await admin(
        device,
        GET_LOG_PAGE,
        nsid=nsid,
        cdws=(cdw10, dwords >> 16, 0, 0, 0, 0),
        nbytes=nbytes,
    )
    return data


async def smart_log(device: Device) -> SmartLog:
    """Read and decode the SMART log."""
    data = await log_page(device, LOG_SMART, 512, 0xFFFFFFFF)

    def wide(at: int) -> int:
        return int.from_bytes(data[at : at + 16], "little")

    return SmartLog(
        critical_warning=data[0],
        temperature_kelvin=int.from_bytes(data[1:3], "little"),
        available_spare_percent=data[3],
        available_spare_threshold_percent=data[4],
        percentage_used=data[5],
        data_units_read=wide(32),
        data_units_written=wide(48),
        host_reads=wide(64),
        host_writes=wide(80),
        controller_busy_minutes=wide(96),
        power_cycles=wide(112),
        power_on_hours=wide(128),
        unsafe_shutdowns=wide(144),
        media_errors=wide(160),
        error_log_entries=wide(176),
    )


async def error_log(device: Device, entries: int) -> tuple[ErrorLogEntry, ...]:
    """Read and decode the error log, newest first; unused entries are left out."""
    if not 1 <= entries <= MAX_DATA // 64:
        raise RangeError(f"entries={entries} is outside 1 .. {MAX_DATA // 64}")
    data = await log_page(device, LOG_ERROR, 64 * entries, 0xFFFFFFFF)
    found: list[ErrorLogEntry] = []
    for at in range(0, len(data), 64):
        entry = data[at : at + 64]
        count = int.from_bytes(entry[:8], "little")
        if not count:
            continue
        status = int.from_bytes(entry[12:14], "little") >> 1  # bit 0 is the phase tag
        found.append(
            ErrorLogEntry(
                error_count=count,
                queue_id=int.from_bytes(entry[8:10], "little"),
                command_id=int.from_bytes(entry[10:12], "little"),
                status=status,
                status_text=status_name(status),
                lba=int.from_bytes(entry[16:24], "little"),
                nsid=int.from_bytes(entry[24:28], "little"),
            )
        )
    return tuple(found)
