"""aiougds: await reads from NVMe.

.. code-block:: python

    async with aiougds.open("emu:data.bin?size=1GiB") as ns:
        async with ns.register(bytearray(4096)) as reg:
            n = await ns.read(reg, offset=0)

An NVMe queue engine in user space for asyncio, uvloop, trio and (``aiougds.blocking``)
plain threads. It drives NVMe devices through its kernel helper (``/dev/ugds_drvN``),
and an embedded controller (``emu:``) over files or memory.

``import aiougds`` costs little: what it consists of is loaded when a name of it is used
for the first time, all of it at once. A program to which that moment matters names what
it uses where it begins: ``from aiougds import open``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiougds import _interpreter as _interpreter  # refuses where C cannot be loaded

if TYPE_CHECKING:
    from aiougds._public import *  # noqa: F403

__version__ = "0.1.0"

__all__ = [
    "AddressError",
    "AddressInUseError",
    "AddressIsDirectoryError",
    "AddressNotFoundError",
    "AddressPermissionError",
    "After",
    "AlignmentError",
    "Arbitration",
    "ArgumentError",
    "ArgumentTypeError",
    "AsCompleted",
    "Batch",
    "BatchError",
    "BatchItem",
    "BrokenError",
    "BusyError",
    "Capabilities",
    "CapabilityError",
    "Cell",
    "ClosedError",
    "CommandName",
    "CommandTimeline",
    "CompareError",
    "Controller",
    "ControllerBusyError",
    "ControllerInfo",
    "ControllerState",
    "ControllerWedgedError",
    "DeviceRemovedError",
    "Edges",
    "ErrorLogEntry",
    "Event",
    "EventLike",
    "Events",
    "Export",
    "Exporting",
    "ForeignMemory",
    "ForkedError",
    "GPUContextError",
    "GPUDevice",
    "GPUError",
    "GPUEvent",
    "GPUMemoryError",
    "GPUUnavailableError",
    "GraphCaptureError",
    "Intent",
    "IoClass",
    "LatencyHistogram",
    "MediaError",
    "MemoryFreedError",
    "MemoryLayoutError",
    "MemoryLimitError",
    "MemoryRevokedError",
    "MemoryTypeError",
    "Mode",
    "NVMeError",
    "Namespace",
    "NamespaceGoneError",
    "NotMappedError",
    "OnDevice",
    "OnError",
    "OpenError",
    "OpenKeywords",
    "OpenOptions",
    "Opening",
    "OperationAbortedError",
    "OperationTimeoutError",
    "OperationWithdrawnError",
    "OptionError",
    "PathError",
    "PinnedMemory",
    "Placement",
    "Plan",
    "Policy",
    "PolicyName",
    "PollingExecutor",
    "PollingThread",
    "Preset",
    "Quarantined",
    "QueuePriority",
    "QueueStatistics",
    "RangeBusyError",
    "RangeError",
    "ReadOnlyError",
    "Registration",
    "RegistrationBusyError",
    "RegistrationCache",
    "RegistrationSlice",
    "Scheduling",
    "SmartLog",
    "Statistics",
    "StatusCell",
    "StreamEvent",
    "StreamGroup",
    "StreamLike",
    "StreamOperation",
    "StreamOrder",
    "StreamState",
    "UGDSError",
    "WrongGPUError",
    "WrongLoopError",
    "gpu_event",
    "open",
    "open_controller",
]


def _load(name: str) -> object:
    from aiougds import _public

    globals().update({one: getattr(_public, one) for one in __all__})
    return globals()[name]


if not TYPE_CHECKING:  # it would know every name

    def __getattr__(name: str) -> object:
        if name in __all__:
            return _load(name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
