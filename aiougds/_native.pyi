# What cffi makes of native/include/ugds.h.

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, overload

from typing_extensions import Buffer

class CData:
    # A pointer, array or struct of C: fields go by the names of the header.
    def __getattr__(self, name: str) -> Any: ...  # noqa: ANN401
    def __setattr__(self, name: str, value: object) -> None: ...
    def __getitem__(self, index: int) -> Any: ...  # noqa: ANN401
    def __setitem__(self, index: int, value: object) -> None: ...
    def __add__(self, other: int) -> CData: ...
    def __int__(self) -> int: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
        /,
    ) -> None: ...

class CType: ...

class FFI:
    NULL: Final[CData]

    errno: int

    def new(self, cdecl: str, init: object = None) -> CData: ...
    def cast(self, cdecl: str, value: CData | int) -> CData: ...
    def buffer(self, cdata: CData, size: int = -1) -> Buffer: ...
    @overload
    def from_buffer(
        self, cdecl: str, python_buffer: Buffer, require_writable: bool = False
    ) -> CData: ...
    @overload
    def from_buffer(
        self, python_buffer: Buffer, /, *, require_writable: bool = False
    ) -> CData: ...
    def string(self, cdata: CData, maxlen: int = -1) -> bytes: ...
    def memmove(self, dest: CData | Buffer, src: CData | Buffer, n: int) -> None: ...
    def sizeof(self, cdecl: str | CData) -> int: ...
    def release(self, cdata: CData) -> None: ...
    def gc(self, cdata: CData, destructor: Callable[[CData], object]) -> CData: ...
    def addressof(self, cdata: CData, *fields: str | int) -> CData: ...

class Lib:
    UGDS_ABI_VERSION: Final[int]
    UGDS_OPEN_READONLY: Final[int]
    UGDS_OPEN_NO_SHADOW: Final[int]
    UGDS_OPEN_NO_HUGEPAGE: Final[int]
    UGDS_OPEN_NO_TALLIES: Final[int]
    UGDS_OPEN_SEGMENT: Final[int]
    UGDS_OPEN_WRR: Final[int]
    UGDS_OPEN_WRR_AUTO: Final[int]
    UGDS_OPEN_FIFO: Final[int]
    UGDS_EMU_READONLY: Final[int]
    UGDS_EMU_FAKE_VS: Final[int]
    UGDS_GARBLE_ZEROS: Final[int]
    UGDS_GARBLE_ONES: Final[int]
    UGDS_GARBLE_RANDOM: Final[int]
    UGDS_GARBLE_SHORT: Final[int]
    UGDS_EMU_CREATE: Final[int]
    UGDS_EMU_NODATA: Final[int]
    UGDS_EMU_VWC: Final[int]
    UGDS_EMU_WRR: Final[int]
    UGDS_EMU_DBBUF: Final[int]
    UGDS_EMU_STEP: Final[int]
    UGDS_EMU_DIRECT: Final[int]
    UGDS_EMU_NO_COALESCE: Final[int]
    UGDS_EMU_AWAKE: Final[int]
    UGDS_EMU_MAX_NS: Final[int]
    UGDS_STATE_LIVE: Final[int]
    UGDS_STATE_RESETTING: Final[int]
    UGDS_STATE_WEDGED: Final[int]
    UGDS_STATE_REMOVED: Final[int]
    UGDS_STATE_CLOSED: Final[int]
    UGDS_CAP_ARM: Final[int]
    UGDS_CAP_STEP: Final[int]
    UGDS_CAP_MAP_INLINE: Final[int]
    UGDS_CAP_DIRECT: Final[int]
    UGDS_CAP_SHADOW: Final[int]
    UGDS_CAP_HUGEPAGE: Final[int]
    UGDS_CAP_WRR: Final[int]
    UGDS_CAP_VWC: Final[int]
    UGDS_CAP_COMPARE: Final[int]
    UGDS_CAP_DEALLOCATE: Final[int]
    UGDS_CAP_WRITE_ZEROES: Final[int]
    UGDS_CAP_VERIFY: Final[int]
    UGDS_CAP_READONLY: Final[int]
    UGDS_CAP_INLINE_READS: Final[int]
    UGDS_CAP_COHERENT: Final[int]
    UGDS_IOMMU_NONE: Final[int]
    UGDS_IOMMU_IDENTITY: Final[int]
    UGDS_IOMMU_TRANSLATED: Final[int]
    UGDS_IOMMU_OWN: Final[int]
    UGDS_MEM_READONLY: Final[int]
    UGDS_FOREIGN_DMABUF: Final[int]
    UGDS_FOREIGN_CUDA: Final[int]
    UGDS_FOREIGN_HIP: Final[int]
    UGDS_FOREIGN_PEER: Final[int]
    UGDS_FOREIGN_READONLY: Final[int]
    UGDS_TRAIT_SYSTEM: Final[int]
    UGDS_TRAIT_PERSISTENT: Final[int]
    UGDS_TRAIT_REVOCABLE: Final[int]
    UGDS_TRAIT_STAGED: Final[int]
    UGDS_MODE_ADAPTIVE: Final[int]
    UGDS_MODE_INLINE: Final[int]
    UGDS_MODE_INTERRUPT: Final[int]
    UGDS_MODE_POLL: Final[int]
    UGDS_OP_FLUSH: Final[int]
    UGDS_OP_WRITE: Final[int]
    UGDS_OP_READ: Final[int]
    UGDS_OP_COMPARE: Final[int]
    UGDS_OP_WRITE_ZEROES: Final[int]
    UGDS_OP_DEALLOCATE: Final[int]
    UGDS_OP_VERIFY: Final[int]
    UGDS_F_FUA: Final[int]
    UGDS_F_NOSPIN: Final[int]
    UGDS_F_SPIN: Final[int]
    UGDS_F_POLL: Final[int]
    UGDS_F_LATENCY: Final[int]
    UGDS_F_BACKGROUND: Final[int]
    UGDS_F_ADAPTIVE: Final[int]
    UGDS_SPIN_SHIFT: Final[int]
    UGDS_SPIN_MOST: Final[int]
    UGDS_CHUNK_SHIFT: Final[int]
    UGDS_MARK_FUTURE: Final[int]
    UGDS_MARK_RESUMED: Final[int]
    UGDS_LOOK_ADMIN: Final[int]
    UGDS_LOOK_BATCH: Final[int]
    UGDS_PENDING: Final[int]
    UGDS_TRACED: Final[int]
    UGDS_TRACE_EVENTS: Final[int]
    UGDS_DONE: Final[int]
    UGDS_NEVER_SENT: Final[int]
    UGDS_ABORTED: Final[int]
    UGDS_UNKNOWN: Final[int]
    UGDS_FAULT_STATUS: Final[int]
    UGDS_FAULT_DELAY: Final[int]
    UGDS_FAULT_HOLD: Final[int]
    UGDS_FAULT_LOSE_INTERRUPT: Final[int]
    UGDS_FAULT_SPURIOUS_INTERRUPT: Final[int]
    UGDS_FAULT_EARLY_INTERRUPT: Final[int]
    UGDS_FAULT_DUP_CQE: Final[int]
    UGDS_FAULT_BAD_CID: Final[int]
    UGDS_FAULT_BAD_SQID: Final[int]
    UGDS_FAULT_DROP: Final[int]
    UGDS_FAULT_CFS: Final[int]
    UGDS_FAULT_REMOVED: Final[int]
    UGDS_FAULT_ABORT_REFUSED: Final[int]
    UGDS_FAULT_ENABLE_STUCK: Final[int]
    UGDS_FAULT_STUCK_PHASE: Final[int]
    UGDS_FAULT_FREE_CID: Final[int]
    UGDS_FAULT_BAD_SQHD: Final[int]
    UGDS_FAULT_RESET_REFUSED: Final[int]
    UGDS_FAULT_NEVER_READY: Final[int]
    UGDS_FAULT_ALL_ONES: Final[int]
    UGDS_FAULT_POWER_CUT: Final[int]
    UGDS_FAULT_POWER_OFF: Final[int]
    UGDS_FAULT_ANY: Final[int]
    UGDS_FAULT_ANY_IO: Final[int]
    UGDS_GPU_CUDA: Final[int]
    UGDS_GPU_HIP: Final[int]
    UGDS_GPU_MEM_NONE: Final[int]
    UGDS_GPU_MEM_DEVICE: Final[int]
    UGDS_GPU_MEM_HOST: Final[int]
    UGDS_GPU_MEM_MANAGED: Final[int]
    UGDS_GPU_CAN_MEMOPS: Final[int]
    UGDS_GPU_CAN_DMABUF: Final[int]
    UGDS_GPU_CAN_FLUSH: Final[int]
    UGDS_GPU_HAS_FLUSH: Final[int]
    UGDS_GPU_NEEDS_FLUSH: Final[int]
    UGDS_SOP_WAITING: Final[int]
    UGDS_SOP_RUNNING: Final[int]
    UGDS_SOP_DONE: Final[int]
    UGDS_SOP_CANCELLED: Final[int]
    UGDS_SOP_FAILED: Final[int]
    UGDS_SOP_STALLED: Final[int]
    UGDS_SOP_STALL: Final[int]
    UGDS_SOP_CALLBACK: Final[int]
    UGDS_SOP_KEEP: Final[int]

    def ugds_open_emu(self, emu: CData, p: CData, ret: CData, err: CData, /) -> int: ...
    def ugds_open_kmod(
        self, path: CData | Buffer, p: CData, ret: CData, err: CData, /
    ) -> int: ...
    def ugds_open_transport(
        self, transport: CData, p: CData, ret: CData, err: CData, /
    ) -> int: ...
    def ugds_exec_new(
        self, threads: int, cpus: CData, nr_cpus: int, ret: CData, /
    ) -> int: ...
    def ugds_exec_free(self, x: CData, /) -> int: ...
    def ugds_ctrl_executor(self, c: CData, out: CData, /) -> int: ...
    def ugds_exec_threads(self, x: CData, out: CData, limit: int, /) -> int: ...
    def ugds_ctrl_close(self, c: CData, force: int, /) -> int: ...
    def ugds_ctrl_free(self, c: CData, /) -> None: ...
    def ugds_ctrl_fork_child(self, c: CData, /) -> None: ...
    def ugds_ctrl_info(self, c: CData, ret: CData, /) -> int: ...
    def ugds_ctrl_stats(self, c: CData, ret: CData, /) -> int: ...
    def ugds_ctrl_tallies(self, c: CData, buf: CData, limit: int, /) -> int: ...
    def ugds_ctrl_coalescing(self, c: CData, ret: CData, /) -> int: ...
    def ugds_trace(self, c: CData, until_ns: int, /) -> int: ...
    def ugds_trace_copy(self, c: CData, words: CData, /) -> int: ...
    def ugds_trace_mark(self, ch: CData, token: int, kind: int, /) -> None: ...
    def ugds_op_look(self, ch: CData, token: int, ret: CData, /) -> int: ...
    def ugds_ctrl_reset(self, c: CData, err: CData, /) -> int: ...
    def ugds_ctrl_nsids(self, c: CData, ret_ids: CData, limit: int, /) -> int: ...
    def ugds_ns_info(self, c: CData, nsid: int, ret: CData, /) -> int: ...
    def ugds_ns_open(
        self,
        c: CData,
        nsid: int,
        base: int,
        nbytes: int,
        readonly: int,
        ret: CData,
        err: CData,
        /,
    ) -> int: ...
    def ugds_ns_size(self, ns: CData, /) -> int: ...
    def ugds_ns_gone(self, ns: CData, /) -> int: ...
    def ugds_ns_close(self, ns: CData, /) -> int: ...
    def ugds_ns_free(self, ns: CData, /) -> None: ...
    def ugds_map(
        self,
        c: CData,
        ptr: CData | Buffer,
        nbytes: int,
        flags: int,
        ret_handle: CData | Buffer,
        /,
    ) -> int: ...
    def ugds_map_foreign(self, c: CData, mem: CData, ret_handle: CData, /) -> int: ...
    def ugds_map_within(
        self,
        c: CData,
        parent: int,
        off: int,
        nbytes: int,
        flags: int,
        ret_handle: CData,
        /,
    ) -> int: ...
    def ugds_unmap(self, c: CData, handle: int, /) -> int: ...
    def ugds_map_inflight(self, c: CData, handle: int, /) -> int: ...
    def ugds_chan_open(self, c: CData, mode: int, ret: CData, /) -> int: ...
    def ugds_chan_fd(self, ch: CData, /) -> int: ...
    def ugds_chan_owns_queue(self, ch: CData, /) -> int: ...
    def ugds_chan_armed(self, ch: CData, /) -> int: ...
    def ugds_chan_close(self, ch: CData, /) -> int: ...
    def ugds_chan_orphan(self, ch: CData, /) -> None: ...
    def ugds_chan_inflight(self, ch: CData, /) -> int: ...
    def ugds_rw(
        self,
        ch: CData,
        ns: CData,
        handle: int,
        buf_off: int,
        nbytes: int,
        offset: int,
        op: int,
        /,
    ) -> int: ...
    def ugds_op_deadline(self, ch: CData, token: int, timeout_ns: int, /) -> None: ...
    def ugds_chan_last(self, ch: CData, ret: CData, /) -> None: ...
    def ugds_chan_tokens(self, ch: CData, out: CData, limit: int, /) -> int: ...
    def ugds_reap(self, ch: CData, out: CData, limit: int, /) -> int: ...
    def ugds_wait(
        self, ch: CData, out: CData, limit: int, timeout_ns: int, /
    ) -> int: ...
    def ugds_cancel(self, ch: CData, token: int, grace_ns: int, /) -> int: ...
    def ugds_batch_new(self, ch: CData, capacity: int, ret: CData, /) -> int: ...
    def ugds_batch_free(self, b: CData, /) -> int: ...
    def ugds_batch_token(self, b: CData, /) -> int: ...
    def ugds_batch_submit(
        self, b: CData, ns: CData, reqs: CData, n: int, ret_bad: CData, /
    ) -> int: ...
    def ugds_batch_submit_array(
        self,
        b: CData,
        ns: CData,
        op: int,
        handle: int,
        offsets: CData | Buffer,
        buf_offsets: CData | Buffer,
        nbytes: int,
        n: int,
        cookie0: int,
        ret_bad: CData,
        /,
    ) -> int: ...
    def ugds_batch_harvest(self, b: CData, out: CData, limit: int, /) -> int: ...
    def ugds_batch_notify(self, b: CData, n: int, /) -> int: ...
    def ugds_batch_pending(self, b: CData, /) -> int: ...
    def ugds_batch_held(self, b: CData, /) -> int: ...
    def ugds_batch_ready(self, b: CData, /) -> int: ...
    def ugds_batch_deadline(self, b: CData, timeout_ns: int, /) -> None: ...
    def ugds_batch_cancel(self, b: CData, grace_ns: int, /) -> int: ...
    def ugds_batch_harvest_ok(self, b: CData, /) -> int: ...
    def ugds_admin_submit(
        self, ch: CData, cmd: CData, data: CData | Buffer, ret: CData, /
    ) -> int: ...
    def ugds_admin_data(self, a: CData, buf: CData | Buffer, nbytes: int, /) -> int: ...
    def ugds_admin_free(self, a: CData, /) -> None: ...
    def ugds_ctrl_events(self, c: CData, out: CData, limit: int, /) -> int: ...
    def ugds_ctrl_event_fd(self, c: CData, /) -> int: ...
    def ugds_ctrl_quarantine(self, c: CData, out: CData, limit: int, /) -> int: ...
    def ugds_fault_add(self, c: CData, f: CData, /) -> int: ...
    def ugds_fault_clear(self, c: CData, fault_id: int, /) -> int: ...
    def ugds_fault_hits(self, c: CData, fault_id: int, /) -> int: ...
    def ugds_emu_event(self, c: CData, dw0: int, /) -> int: ...
    def ugds_emu_power_cut(self, c: CData, seed: CData, stays_off: int, /) -> int: ...
    def ugds_emu_resize(self, c: CData, nsid: int, nbytes: int, /) -> int: ...
    def ugds_emu_attach(self, c: CData, nsid: int, nbytes: int, on: int, /) -> int: ...
    def ugds_emu_as_hardware(self, c: CData, /) -> int: ...
    def ugds_emu_counters(self, c: CData, ret: CData, /) -> int: ...
    def ugds_gpu_symbol(
        self, vendor: int, i: int, ret_version: CData, ret_optional: CData, /
    ) -> CData: ...
    def ugds_gpu_load(
        self, vendor: int, addrs: CData, n: int, err: CData, /
    ) -> int: ...
    def ugds_gpu_pointer(
        self, vendor: int, addr: int, ret: CData, ret_code: CData, /
    ) -> int: ...
    def ugds_gpu_export(
        self,
        of: CData,
        addr: int,
        nbytes: int,
        flags: int,
        ret_fd: CData,
        ret_code: CData,
        /,
    ) -> int: ...
    def ugds_gpu_alloc(
        self, vendor: int, device: int, nbytes: int, ret: CData, ret_code: CData, /
    ) -> int: ...
    def ugds_gpu_free(self, mem: CData, ret_code: CData, /) -> int: ...
    def ugds_gpu_caps(
        self, vendor: int, device: int, ret: CData, ret_code: CData, /
    ) -> int: ...
    def ugds_gpu_copy_in(
        self, of: CData, dst: int, host: CData | Buffer, nbytes: int, ret_code: CData, /
    ) -> int: ...
    def ugds_gpu_copy_out(
        self, of: CData, host: CData | Buffer, src: int, nbytes: int, ret_code: CData, /
    ) -> int: ...
    def ugds_gpu_stream_place(
        self,
        vendor: int,
        stream: int,
        ret_device: CData,
        ret_ctx: CData,
        ret_code: CData,
        /,
    ) -> int: ...
    def ugds_gpu_stream_capturing(
        self, vendor: int, device: int, ctx: int, stream: int, ret_code: CData, /
    ) -> int: ...
    def ugds_gpu_event_record(
        self,
        vendor: int,
        device: int,
        ctx: int,
        stream: int,
        ret_event: CData,
        ret_code: CData,
        /,
    ) -> int: ...
    def ugds_gpu_event_query(
        self, vendor: int, device: int, ctx: int, event: int, ret_code: CData, /
    ) -> int: ...
    def ugds_gpu_event_free(
        self, vendor: int, device: int, ctx: int, event: int, ret_code: CData, /
    ) -> int: ...
    def ugds_gpu_stream_wait_event(
        self,
        vendor: int,
        device: int,
        ctx: int,
        stream: int,
        event: int,
        ret_code: CData,
        /,
    ) -> int: ...
    def ugds_gpu_host_alloc(
        self,
        vendor: int,
        device: int,
        nbytes: int,
        ret: CData,
        ret_dev: CData,
        ret_code: CData,
        /,
    ) -> int: ...
    def ugds_gpu_host_free(
        self, vendor: int, device: int, host: CData, ret_code: CData, /
    ) -> int: ...
    def ugds_gpu_error_sticky(self, vendor: int, code: int, /) -> int: ...
    def ugds_gpu_error_name(self, vendor: int, code: int, /) -> CData: ...
    def ugds_bench_cycles(
        self,
        ch: CData,
        ns: CData,
        handle: int,
        map_bytes: int,
        depth: int,
        commands: int,
        ret: CData,
        /,
    ) -> int: ...
    def ugds_stream_open(
        self, c: CData, p: CData, ret: CData, err: CData, /
    ) -> int: ...
    def ugds_stream_close(self, s: CData, force: int, /) -> int: ...
    def ugds_stream_free(self, s: CData, /) -> None: ...
    def ugds_stream_info(self, s: CData, ret: CData, /) -> int: ...
    def ugds_stream_rw(
        self,
        s: CData,
        ns: CData,
        handle: int,
        buf_off: int,
        nbytes: int,
        offset: int,
        gpu_addr: int,
        op: int,
        ret: CData,
        /,
    ) -> int: ...
    def ugds_stream_enqueue(
        self,
        s: CData,
        ns: CData,
        items: CData,
        n: int,
        how: CData,
        ret: CData,
        err: CData,
        /,
    ) -> int: ...
    def ugds_stream_state(self, s: CData, token: int, ret: CData, /) -> int: ...
    def ugds_stream_cancel(self, s: CData, token: int, /) -> int: ...
    def ugds_stream_resume(self, s: CData, token: int, /) -> int: ...
    def ugds_stream_fail(self, s: CData, token: int, /) -> int: ...
    def ugds_stream_leave(self, s: CData, token: int, /) -> None: ...
    def ugds_stream_release(self, s: CData, token: int, /) -> None: ...
    def ugds_stream_reap(self, s: CData, tokens: CData, n: int, /) -> int: ...
    def ugds_sink_open(self, c: CData, ret: CData, /) -> int: ...
    def ugds_sink_fd(self, k: CData, /) -> int: ...
    def ugds_sink_reap(self, k: CData, out: CData, limit: int, /) -> int: ...
    def ugds_sink_close(self, k: CData, /) -> None: ...
    def ugds_sink_spin(self, k: CData, s: CData, token: int, /) -> int: ...
    def ugds_stream_watch(
        self, s: CData, token: int, k: CData, lazily: int, /
    ) -> int: ...
    def ugds_sink_event(
        self,
        k: CData,
        vendor: int,
        device: int,
        ctx: int,
        event: int,
        ret_token: CData,
        ret_code: CData,
        /,
    ) -> int: ...
    def ugds_sink_event_drop(self, k: CData, token: int, /) -> None: ...

ffi: Final[FFI]
lib: Final[Lib]
