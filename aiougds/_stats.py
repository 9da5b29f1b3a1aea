"""Records of what a controller is and has done."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from aiougds._coalescing import coalescing
from aiougds._ffi import NULL, ffi, lib, text
from aiougds._tallies import (
    CommandName,
    LatencyHistogram,
    QueueStatistics,
    added,
    read_head,
    read_pairs,
    read_rows,
)

if TYPE_CHECKING:
    from aiougds._device import Device
    from aiougds._ffi import CData
    from aiougds._options import IoClass, Mode

ControllerState = Literal["live", "resetting", "wedged", "removed", "closed"]
"""Of :attr:`Controller.state`."""

STATES: Final[dict[int, ControllerState]] = {
    lib.UGDS_STATE_LIVE: "live",
    lib.UGDS_STATE_RESETTING: "resetting",
    lib.UGDS_STATE_WEDGED: "wedged",
    lib.UGDS_STATE_REMOVED: "removed",
    lib.UGDS_STATE_CLOSED: "closed",
}


IOMMUS: Final[dict[int, Literal["none", "identity", "translated", "own"]]] = {
    lib.UGDS_IOMMU_NONE: "none",
    lib.UGDS_IOMMU_IDENTITY: "identity",
    lib.UGDS_IOMMU_TRANSLATED: "translated",
    lib.UGDS_IOMMU_OWN: "own",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What is in force, not what was asked for."""

    transport: str
    """``emu`` for the embedded controller, ``kmod`` for the kernel helper."""
    direct: bool
    """Whether a device does the DMA."""
    gpu_memory: Literal["direct", "staged"]
    """How registered GPU memory is reached: by the device's own DMA, or through pinned
    host memory."""
    completion: Mode
    """How operations wait unless one says otherwise."""
    queue: Literal["own", "shared"]
    """Whether this loop or thread has (or would get) queue pairs of its own."""
    wake_armed: bool
    """Interrupts wake an owner only when it asked to be woken.

    The kernel helper has words for some hundred loops and threads; one that gets none
    is signalled always, and works all the same.
    """
    stepping: bool
    """A spinning host thread runs the embedded controller itself."""
    inline_reads: bool
    """Small cached reads can complete inside the submitting call."""
    map_inline: bool
    """Pinning needs no system call."""
    hugepages: bool
    """Batch rings are in huge pages."""
    queue_memory: Literal["hugepage", "coherent", "pages"]
    """What batch rings lie in: huge pages, memory of the kernel's, ordinary pages."""
    iommu: Literal["none", "identity", "translated", "own"]
    """What stands between the device and memory; ``own``: the embedded one's."""
    shadow_doorbells: bool
    """Doorbells go to memory, and to registers when the controller asks (Doorbell
    Buffer)."""
    arbitration: Literal["rr", "wrr"]
    """Between queues: round robin, or weighted round robin with an urgent class."""
    volatile_write_cache: bool
    """Written data survives a power cut only after a flush or with ``fua``."""
    compare: bool
    """The controller has Compare."""
    deallocate: bool
    """The controller has Deallocate (Dataset Management)."""
    write_zeroes: bool
    """The controller has Write Zeroes."""
    verify: bool
    """The controller has Verify."""
    readonly: bool
    """Nothing that changes media is sent."""
    max_transfer_bytes: int
    """Bytes of one command; longer requests are split."""
    mdts_bytes: int
    """What the controller allows for one command; 0: no limit."""
    queue_pairs: int
    """I/O queue pairs granted and in use."""
    batch_queue_pairs: int
    """Of these, deep ones, for batches and large operations."""
    class_queue_pairs: int
    """Set aside for each of the latency and background classes; see ``arbitration``."""
    free_queue_pairs: int
    """Not leased by a loop or thread now."""
    depth: int
    """Entries of a general queue."""
    batch_depth: int
    """Entries of a deep queue."""
    vectors: int
    """Interrupt vectors in use."""
    coalesce_commands: int
    """Completions that share an interrupt, on the queue pairs where any do."""
    coalesce_us: float
    """How long the first of them waits for the others."""
    coalesced_queue_pairs: int
    """Pairs of whose completions some share an interrupt."""
    coalesce_reason: str
    """Why there are none, though it was asked for; else empty."""
    spin_us: float
    """How long a submitting thread may spin for its completion."""
    wake_us: float
    """Cost of a wake-up, measured at open."""
    statistics_segment: str
    """The file in which ``aiougds top`` sees it; empty: there is none."""
    statistics_segment_reason: str
    """Why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerInfo:
    """Who the controller is (Identify Controller; NVMe base, clause 5.17.2.1)."""

    serial: str
    """Serial number (SN)."""
    model: str
    """Model number (MN)."""
    firmware: str
    """Firmware revision (FR)."""
    vendor_id: int
    """PCI vendor (VID)."""
    version: tuple[int, int, int]
    """Of the specification that it implements (VS): major, minor, tertiary."""
    cap: int
    """The register CAP."""
    page_bytes: int
    """Memory page size in use (CC.MPS)."""
    abort_limit: int
    """Abort commands that may be outstanding."""
    event_limit: int
    """Asynchronous event requests that may be outstanding."""
    retry_delays_s: tuple[float, float, float]
    """What CRD 1 to 3 of a failure stand for; zeros without ``retries``."""
    atomic_write_blocks: int
    """Blocks written in one piece across a power cut."""
    pci_address: str
    """Such as ``0000:65:00.0``; empty for the embedded controller."""
    numa_node: int | None
    """Where the device is; None: the machine does not say."""
    open_ms: float
    """How long bring-up took."""


@dataclass(frozen=True, slots=True)
class PollingThread:
    """What a thread of an executor does."""

    thread_id: int
    """Of the kernel; 0: it has not run yet."""
    cpu: int | None
    """The processor it is kept on."""
    controllers: int
    """Controllers that it polls. Each begins when it first has something to poll."""
    passes: int
    """Looks at all of them."""
    found: int
    """Of these, with something to do."""
    sleeps: int
    """Times that it went to sleep, for lack of work."""
    cpu_s: float
    """Processor time it has taken."""
    alive_s: float
    """Time since it began."""

    @property
    def queue_pairs(self) -> int:
        """Queue pairs that it polls: the last one of each controller."""
        return self.controllers

    @property
    def busy(self) -> float:
        """Share of a processor that it has taken since it began, 0 to 1."""
        return min(1.0, self.cpu_s / self.alive_s) if self.alive_s else 0.0


def thread_of(native: CData) -> PollingThread:
    """Return what C says of a thread."""
    return PollingThread(
        thread_id=native.tid,
        cpu=None if native.cpu < 0 else native.cpu,
        controllers=native.controllers,
        passes=native.passes,
        found=native.found,
        sleeps=native.sleeps,
        cpu_s=_cpu_s(native.tid),
        alive_s=native.alive_ns / 1e9,
    )


def _polling_for(ctrl: CData) -> tuple[PollingThread, ...]:
    """Return the thread that polls for a controller, if there is one yet."""
    native = ffi.new("struct ugds_exec_thread *")
    there = lib.ugds_ctrl_executor(ctrl, native) > 0
    return (thread_of(native),) if there else ()


def _cpu_s(thread_id: int) -> float:
    """Return the processor time of one of our threads; 0.0 when it is not known."""
    if not thread_id:
        return 0.0
    # The kernel's number of a thread's clock.
    try:
        return time.clock_gettime((~thread_id << 3) | 6)
    except OSError:
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Counters since the controller was opened; reading them stops nothing."""

    reads: int
    """Read commands that completed."""
    writes: int
    """Write commands that completed."""
    others: int
    """Other commands of I/O queues that completed."""
    read_bytes: int
    """Bytes that reads moved."""
    write_bytes: int
    """Bytes that writes moved."""
    errors: int
    """Commands that failed."""
    retries: int
    """Commands sent again after a failure, with ``retries`` given to ``open``."""
    commands: int
    """Commands that were sent on I/O queues."""
    doorbells: int
    """Doorbell writes of submission queues."""
    inline_completions: int
    """Operations that ended inside the submitting call."""
    wakeups: int
    """How often an owner that slept was woken."""
    stragglers: int
    """Completions found by housekeeping after their owner slept through them."""
    timeouts: int
    """Operations whose ``timeout_s`` ran out."""
    cancels: int
    """Cancelled operations that were given up: ``cancel_grace_s`` ran out."""
    aborts: int
    """Abort commands that were sent."""
    resets: int
    """Resets of the controller."""
    unknown_cids: int
    """Completions of commands that nobody had sent."""
    dropped: int
    """Completions that nobody waited for: their loop or thread is gone, or a signal's
    handler raised just as they were started."""
    adopted: int
    """Queue pairs that housekeeping drained for a closed loop or a dead thread."""
    inflight: int
    """Commands at the device now."""
    mappings: int
    """Registrations that are mapped now."""
    channels: int
    """Loops and threads that use it now."""
    quarantined: int
    """Operations whose memory the device may still touch."""
    jit_pins: int
    """Unregistered memory that was pinned just in time."""
    bounces: int
    """Requests copied because of unaligned memory or edges."""
    bounced_bytes: int
    """Bytes that were copied for these."""
    queues: tuple[QueueStatistics, ...] = ()
    """The I/O queue pairs; none with ``statistics=False``."""
    latencies: tuple[LatencyHistogram, ...] = ()
    """One for each queue pair, class, command and size that there was."""
    executors: tuple[PollingThread, ...] = ()
    """The thread that polls for it; none until something had to be polled. Shared with
    other controllers where it is one of a :class:`PollingExecutor`."""

    def latency(
        self,
        command: CommandName | None = None,
        *,
        io_class: IoClass | None = None,
        queue_id: int | None = None,
        max_bytes: int | None = None,
    ) -> LatencyHistogram:
        """Return these latencies as one histogram; None: of any.

        ``queue_id`` is a queue pair, ``max_bytes`` a size class as its histograms have.
        """
        return added(
            row
            for row in self.latencies
            if command in (None, row.command)
            and io_class in (None, row.io_class)
            and queue_id in (None, row.queue_id)
            and max_bytes in (None, row.max_bytes)
        )


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Memory that a given-up command may still touch."""

    nbytes: int
    """How much."""
    buf_offset: int
    """Where in its registration."""
    age_s: float
    """Since it was given up."""
    queue_id: int
    """Queue pair of the command."""
    command_id: int
    """Its identifier there (CID)."""


def capabilities(
    device: Device, *, own_queue: bool | None, armed: bool | None
) -> Capabilities:
    """Read them; ``own_queue`` and ``armed`` None: this loop has no channel yet."""
    info = device.info()
    caps = int(info.caps)
    together = coalescing(device)
    own = own_queue if own_queue is not None else info.free_queues > 0
    return Capabilities(
        transport=text(info.transport),
        direct=bool(caps & lib.UGDS_CAP_DIRECT),
        gpu_memory="direct" if caps & lib.UGDS_CAP_DIRECT else "staged",
        completion=device.options.mode,
        queue="own" if own and device.options.mode != "poll" else "shared",
        wake_armed=bool(caps & lib.UGDS_CAP_ARM) if armed is None else armed,
        stepping=bool(caps & lib.UGDS_CAP_STEP),
        inline_reads=bool(caps & lib.UGDS_CAP_INLINE_READS),
        map_inline=bool(caps & lib.UGDS_CAP_MAP_INLINE),
        hugepages=bool(caps & lib.UGDS_CAP_HUGEPAGE),
        queue_memory="hugepage"
        if caps & lib.UGDS_CAP_HUGEPAGE
        else "coherent"
        if caps & lib.UGDS_CAP_COHERENT
        else "pages",
        iommu=IOMMUS[info.iommu],
        shadow_doorbells=bool(caps & lib.UGDS_CAP_SHADOW),
        arbitration="wrr" if caps & lib.UGDS_CAP_WRR else "rr",
        volatile_write_cache=bool(caps & lib.UGDS_CAP_VWC),
        compare=bool(caps & lib.UGDS_CAP_COMPARE),
        deallocate=bool(caps & lib.UGDS_CAP_DEALLOCATE),
        write_zeroes=bool(caps & lib.UGDS_CAP_WRITE_ZEROES),
        verify=bool(caps & lib.UGDS_CAP_VERIFY),
        readonly=bool(caps & lib.UGDS_CAP_READONLY),
        max_transfer_bytes=info.max_transfer,
        mdts_bytes=info.mdts_bytes,
        queue_pairs=info.io_queues,
        batch_queue_pairs=info.batch_queues,
        class_queue_pairs=info.class_queues,
        free_queue_pairs=info.free_queues,
        depth=info.depth,
        batch_depth=info.batch_depth,
        vectors=info.vectors,
        coalesce_commands=together.commands,
        coalesce_us=together.wait_us,
        coalesced_queue_pairs=together.pairs,
        coalesce_reason=together.reason,
        spin_us=info.spin_ns / 1e3,
        wake_us=info.wake_ns / 1e3,
        statistics_segment=device.segment.path,
        statistics_segment_reason=device.segment.reason,
    )


def controller_info(device: Device) -> ControllerInfo:
    """Read it."""
    info = device.info()
    return ControllerInfo(
        serial=text(info.serial),
        model=text(info.model),
        firmware=text(info.firmware),
        vendor_id=info.vid,
        version=(info.vs >> 16, (info.vs >> 8) & 0xFF, info.vs & 0xFF),
        cap=info.cap,
        page_bytes=info.page_bytes,
        abort_limit=info.acl + 1,
        event_limit=info.aerl + 1,
        retry_delays_s=(info.crdt[0] / 10, info.crdt[1] / 10, info.crdt[2] / 10),
        atomic_write_blocks=info.awupf_blocks,
        pci_address=text(info.bus),
        numa_node=None if info.numa_node < 0 else info.numa_node,
        open_ms=info.open_ns / 1e6,
    )


def _tallies(
    device: Device,
) -> tuple[tuple[QueueStatistics, ...], tuple[LatencyHistogram, ...]]:
    room = lib.ugds_ctrl_tallies(device.ptr, NULL, 0)
    if room <= 0:  # none are kept, or it was closed just now
        return (), ()
    room += 1 << 16  # there may be more by then
    words = ffi.new("uint64_t[]", room // 8)
    room = min(lib.ugds_ctrl_tallies(device.ptr, words, room // 8 * 8), room)
    if room <= 0:
        return (), ()
    memory = memoryview(ffi.buffer(words, room))
    head = read_head(memory)
    rows = read_rows(memory, head)
    return read_pairs(memory, head, rows), rows


def statistics(device: Device) -> Statistics:
    """Read them."""
    queues, latencies = _tallies(device)
    stats = device.stats()
    return Statistics(
        reads=stats.reads,
        writes=stats.writes,
        others=stats.others,
        read_bytes=stats.read_bytes,
        write_bytes=stats.write_bytes,
        errors=stats.errors,
        retries=stats.retries,
        commands=stats.commands,
        doorbells=stats.doorbells,
        inline_completions=stats.inline_completions,
        wakeups=stats.wakeups,
        stragglers=stats.stragglers,
        timeouts=stats.timeouts,
        cancels=stats.cancels,
        aborts=stats.aborts,
        resets=stats.resets,
        unknown_cids=stats.unknown_cids,
        dropped=stats.dropped + device.unclaimed,
        adopted=stats.adopted,
        inflight=stats.inflight,
        mappings=stats.mappings,
        channels=stats.channels,
        quarantined=stats.quarantined,
        jit_pins=device.jit_pins,
        bounces=device.bounces,
        bounced_bytes=device.bounced_bytes,
        queues=queues,
        latencies=latencies,
        executors=_polling_for(device.ptr),
    )


def quarantine(device: Device) -> tuple[Quarantined, ...]:
    """Read it."""
    room = max(16, device.stats().quarantined)
    array = ffi.new("struct ugds_stuck[]", room)
    count = lib.ugds_ctrl_quarantine(device.ptr, array, room)
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return tuple(
        Quarantined(
            nbytes=array[i].nbytes,
            buf_offset=array[i].buf_off,
            age_s=max(0.0, (now - array[i].since_ns) / 1e9),
            queue_id=array[i].qid,
            command_id=array[i].cid,
        )
        for i in range(max(0, min(count, room)))
    )
