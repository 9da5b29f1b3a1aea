"""All public names of the package, in one place: what ``aiougds`` hands out."""

from __future__ import annotations

from aiougds._admin import ErrorLogEntry, SmartLog
from aiougds._batch import Batch, BatchItem
from aiougds._buffer import ForeignMemory, GPUDevice
from aiougds._cells import Cell, StatusCell
from aiougds._completed import AsCompleted
from aiougds._controller import Controller
from aiougds._device_memory import Placement
from aiougds._errors import (
    AddressError,
    AddressInUseError,
    AddressIsDirectoryError,
    AddressNotFoundError,
    AddressPermissionError,
    AlignmentError,
    ArgumentError,
    ArgumentTypeError,
    BatchError,
    BrokenError,
    BusyError,
    CapabilityError,
    ClosedError,
    CompareError,
    ControllerBusyError,
    ControllerWedgedError,
    DeviceRemovedError,
    ForkedError,
    GPUContextError,
    GPUError,
    GPUMemoryError,
    GPUUnavailableError,
    GraphCaptureError,
    MediaError,
    MemoryFreedError,
    MemoryLayoutError,
    MemoryLimitError,
    MemoryRevokedError,
    MemoryTypeError,
    NamespaceGoneError,
    NotMappedError,
    NVMeError,
    OpenError,
    OperationAbortedError,
    OperationTimeoutError,
    OperationWithdrawnError,
    OptionError,
    PathError,
    RangeBusyError,
    RangeError,
    ReadOnlyError,
    RegistrationBusyError,
    UGDSError,
    WrongGPUError,
    WrongLoopError,
)
from aiougds._events import Event, Events
from aiougds._export import Export, Exporting
from aiougds._gpu.streams import After, EventLike, StreamLike
from aiougds._gpu_cache import RegistrationCache
from aiougds._namespace import Namespace
from aiougds._open import Opening, open, open_controller  # noqa: A004
from aiougds._options import (
    Arbitration,
    Edges,
    IoClass,
    Mode,
    OpenKeywords,
    OpenOptions,
    PolicyName,
    Preset,
    QueuePriority,
    Scheduling,
)
from aiougds._pinned import OnDevice, PinnedMemory, RegistrationSlice
from aiougds._policy import Intent, Plan, Policy
from aiougds._polling import PollingExecutor
from aiougds._registration import Registration
from aiougds._stats import (
    Capabilities,
    ControllerInfo,
    ControllerState,
    PollingThread,
    Quarantined,
    Statistics,
)
from aiougds._stream_calls import OnError, StreamOrder
from aiougds._stream_event import GPUEvent, StreamEvent, gpu_event
from aiougds._stream_group import StreamGroup
from aiougds._stream_op import StreamOperation, StreamState
from aiougds._tallies import CommandName, LatencyHistogram, QueueStatistics
from aiougds._timeline import CommandTimeline

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


def _name_public() -> None:
    # Where a name is found is what it is called, not the file that it is written in.
    for name in __all__:
        value = globals()[name]
        if callable(value):
            value.__module__ = "aiougds"


_name_public()
