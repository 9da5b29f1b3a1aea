"""Names of NVMe status codes (NVMe base specification 2.0, figures 93 to 102)."""

from __future__ import annotations

from typing import Final

GENERIC: Final[dict[int, str]] = {
    0x00: "Successful Completion",
    0x01: "Invalid Command Opcode",
    0x02: "Invalid Field in Command",
    0x03: "Command ID Conflict",
    0x04: "Data Transfer Error",
    0x05: "Commands Aborted due to Power Loss Notification",
    0x06: "Internal Error",
    0x07: "Command Abort Requested",
    0x08: "Command Aborted due to SQ Deletion",
    0x09: "Command Aborted due to Failed Fused Command",
    0x0A: "Command Aborted due to Missing Fused Command",
    0x0B: "Invalid Namespace or Format",
    0x0C: "Command Sequence Error",
    0x0D: "Invalid SGL Segment Descriptor",
    0x0E: "Invalid Number of SGL Descriptors",
    0x0F: "Data SGL Length Invalid",
    0x10: "Metadata SGL Length Invalid",
    0x11: "SGL Descriptor Type Invalid",
    0x12: "Invalid Use of Controller Memory Buffer",
    0x13: "PRP Offset Invalid",
    0x14: "Atomic Write Unit Exceeded",
    0x15: "Operation Denied",
    0x16: "SGL Offset Invalid",
    0x18: "Host Identifier Inconsistent Format",
    0x19: "Keep Alive Timer Expired",
    0x1A: "Keep Alive Timeout Invalid",
    0x1B: "Command Aborted due to Preempt and Abort",
    0x1C: "Sanitize Failed",
    0x1D: "Sanitize In Progress",
    0x1E: "SGL Data Block Granularity Invalid",
    0x1F: "Command Not Supported for Queue in CMB",
    0x20: "Namespace is Write Protected",
    0x21: "Command Interrupted",
    0x22: "Transient Transport Error",
    0x23: "Command Prohibited by Lockdown",
    0x24: "Admin Command Media Not Ready",
    0x80: "LBA Out of Range",
    0x81: "Capacity Exceeded",
    0x82: "Namespace Not Ready",
    0x83: "Reservation Conflict",
    0x84: "Format In Progress",
}

COMMAND: Final[dict[int, str]] = {
    0x00: "Completion Queue Invalid",
    0x01: "Invalid Queue Identifier",
    0x02: "Invalid Queue Size",
    0x03: "Abort Command Limit Exceeded",
    0x05: "Asynchronous Event Request Limit Exceeded",
    0x06: "Invalid Firmware Slot",
    0x07: "Invalid Firmware Image",
    0x08: "Invalid Interrupt Vector",
    0x09: "Invalid Log Page",
    0x0A: "Invalid Format",
    0x0C: "Invalid Queue Deletion",
    0x0D: "Feature Identifier Not Saveable",
    0x0E: "Feature Not Changeable",
    0x0F: "Feature Not Namespace Specific",
    0x80: "Conflicting Attributes",
    0x81: "Invalid Protection Information",
    0x82: "Attempted Write to Read Only Range",
    0x83: "Command Size Limit Exceeded",
}

MEDIA: Final[dict[int, str]] = {
    0x80: "Write Fault",
    0x81: "Unrecovered Read Error",
    0x82: "End-to-end Guard Check Error",
    0x83: "End-to-end Application Tag Check Error",
    0x84: "End-to-end Reference Tag Check Error",
    0x85: "Compare Failure",
    0x86: "Access Denied",
    0x87: "Deallocated or Unwritten Logical Block",
    0x88: "End-to-end Storage Tag Check Error",
}

PATH: Final[dict[int, str]] = {
    0x00: "Internal Path Error",
    0x01: "Asymmetric Access Persistent Loss",
    0x02: "Asymmetric Access Inaccessible",
    0x03: "Asymmetric Access Transition",
    0x60: "Controller Pathing Error",
    0x70: "Host Pathing Error",
    0x71: "Command Aborted By Host",
}

_TABLES: Final = {0: GENERIC, 1: COMMAND, 2: MEDIA, 3: PATH}
_TYPES: Final = {
    0: "generic status",
    1: "command specific status",
    2: "media error",
    3: "path error",
    7: "vendor specific status",
}


def status_name(status: int) -> str:
    """Return the specification's name of a status field (type 10:8, code 7:0)."""
    sct, sc = (status >> 8) & 0x7, status & 0xFF
    name = _TABLES.get(sct, {}).get(sc)
    return name or f"{_TYPES.get(sct, 'reserved status type')} {sc:#04x}"
