"""Options of ``open``: their types, limits, defaults and environment variables.

An argument wins over its environment variable (``AIOUGDS_DEPTH=128`` and so on),
which wins over the default. ``UGDS_INTERRUPT_MODE`` (1, on, true or yes) is the
paper's way to ask for ``mode="interrupt"``, and loses to both. This is the only module
that reads the environment.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final, Literal, TypedDict, cast, get_args

from aiougds._errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiougds._policy import Policy
    from aiougds._polling import PollingExecutor

Mode = Literal["adaptive", "inline", "interrupt", "poll"]
QueuePriority = Literal["urgent", "high", "medium", "low"]
"""Of queue pairs, where the controller weighs them (QPRIO)."""
Arbitration = Literal["rr", "wrr", "auto"]
"""Round robin, weighted round robin, or that where it is offered (CC.AMS)."""
IoClass = Literal["latency", "normal", "background"]
PolicyName = Literal["latency", "throughput", "priority", "adaptive"]
Scheduling = Literal["classes", "fifo"]
"""``fifo``: large operations go whole, and no class goes first."""
Edges = Literal["refuse", "bounce"]

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
PRIORITIES: Final[tuple[QueuePriority, ...]] = get_args(QueuePriority)
IO_CLASSES: Final[tuple[IoClass, ...]] = get_args(IoClass)
POLICIES: Final[tuple[PolicyName, ...]] = get_args(PolicyName)
EDGES: Final[tuple[Edges, ...]] = get_args(Edges)
ENVIRONMENT: Final = "AIOUGDS_"
INTERRUPT_MODE: Final = "UGDS_INTERRUPT_MODE"
_WORDS: Final = {
    "1": True, "on": True, "true": True, "yes": True,
    "0": False, "off": False, "false": False, "no": False, "": False,
}  # fmt: skip


class OpenKeywords(TypedDict, total=False):
    """Keywords of ``open`` and the like: the fields of :class:`OpenOptions`."""

    readonly: bool
    mode: Mode
    completion: Mode | None
    queues: int
    batch_queues: int | None
    depth: int
    batch_depth: int
    max_transfer: int
    vectors: int | None
    spin_us: float
    hang_timeout_s: float
    admin_timeout_s: float
    cancel_grace_s: float
    retries: int
    shadow_doorbells: bool
    hugepages: bool
    arbitration: Arbitration
    queue_priority: QueuePriority
    coalesce_commands: int
    coalesce_us: float
    executor: PollingExecutor | None
    policy: Policy | PolicyName | None
    io_class: IoClass | None
    scheduling: Scheduling
    chunk: int
    bulk_inflight: int
    background_inflight: int
    require_direct: bool
    statistics: bool
    statistics_segment: bool
    gpu_cache_bytes: int
    gpu_cache_entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """What a policy chooses for ``open``, where nothing else was said.

    They are fields of :class:`OpenOptions`; None: it does not choose.
    """

    mode: Mode | None = None
    depth: int | None = None
    batch_depth: int | None = None
    spin_us: float | None = None
    chunk: int | None = None
    bulk_inflight: int | None = None
    background_inflight: int | None = None
    coalesce_commands: int | None = None
    coalesce_us: float | None = None
    arbitration: Arbitration | None = None

    def chosen(self) -> dict[str, object]:
        """Return what it chooses, by name."""
        found = {spec.name: getattr(self, spec.name) for spec in fields(self)}
        return {name: value for name, value in found.items() if value is not None}


NO_PRESET: Final = Preset()
PRESETS: Final[dict[str, Preset]] = {
    "latency": Preset(spin_us=50.0, chunk=64 << 10, bulk_inflight=4 << 20),
    "throughput": Preset(
        mode="interrupt",
        depth=256,
        chunk=1 << 20,
        bulk_inflight=256 << 20,
        background_inflight=64 << 20,
        coalesce_commands=8,
    ),
    "priority": Preset(
        arbitration="auto",
        chunk=128 << 10,
        bulk_inflight=8 << 20,
        background_inflight=1 << 20,
    ),
    "adaptive": NO_PRESET,
}


def _limits(low: float, high: float) -> dict[str, tuple[float, float]]:
    return {"limits": (low, high)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """What was asked for when a controller was opened: the arguments of ``open``.

    What is not given as one may come from the environment: ``AIOUGDS_DEPTH=128``. A
    value outside of its limits is refused by OptionError, which names them.
    """

    readonly: bool = False
    """Nothing that changes media is ever submitted; enforced in C."""
    mode: Mode = "adaptive"
    """How operations wait, unless one says otherwise."""
    completion: Mode | None = None
    """As ``mode``, but ``open`` raises CapabilityError when it cannot be had."""
    queues: int = field(default=16, metadata=_limits(1, 128))
    """I/O queue pairs to ask for; the controller may grant fewer."""
    batch_queues: int | None = field(default=None, metadata=_limits(0, 127))
    """Of these, deep ones for batches. None: a quarter."""
    depth: int = field(default=64, metadata=_limits(2, 65536))
    """Entries of a general queue."""
    batch_depth: int = field(default=512, metadata=_limits(2, 65536))
    """Entries of a batch queue."""
    max_transfer: int = field(default=1 << 20, metadata=_limits(4096, 1 << 30))
    """Bytes one command moves at most; the controller's MDTS may say less."""
    vectors: int | None = field(default=None, metadata=_limits(1, 2048))
    """Interrupt vectors. None: one for each queue pair, as far as they go."""
    spin_us: float = field(default=10.0, metadata=_limits(0, 1000))
    """Inline budget: how long a submitting thread may spin for its completion."""
    hang_timeout_s: float = field(default=30.0, metadata=_limits(0.01, 86400))
    """I/O commands older than this are aborted; then the controller is wedged."""
    admin_timeout_s: float = field(default=60.0, metadata=_limits(0.01, 86400))
    """The same for admin commands."""
    cancel_grace_s: float = field(default=1.0, metadata=_limits(0.0, 86400))
    """How long a cancelled await waits before its memory is quarantined."""
    retries: int = field(default=0, metadata=_limits(0, 100))
    """How often a command is sent again that failed without "Do Not Retry".

    The controller says when (CRD in the status field, NVMe base); else it is at once,
    then after 1 ms, 2 ms and so on up to 128 ms. Reads, writes, compares, flushes,
    verifies, zeroes and deallocations alike: doing them twice does what once does.
    Admin commands and what was aborted are not retried; a time limit or a cancel ends
    it. What the controller wants to be sent later than after ``hang_timeout_s`` is not
    retried: the failure says ``retry_after_s``.
    """
    shadow_doorbells: bool = True
    """Use the Doorbell Buffer (NVMe base, clause 5.8) where it is advertised."""
    hugepages: bool = True
    """Put deep rings into huge pages where the system has some."""
    arbitration: Arbitration = "rr"
    """CC.AMS: round robin, or weighted round robin with urgent priority class.

    "auto": weighted where the controller offers it. Then the latency class has queue
    pairs of urgent priority, the background class such of low priority, as far as
    there are enough: with 8 or more.
    """
    queue_priority: QueuePriority = "medium"
    """QPRIO of the queues; means something with ``arbitration="wrr"``."""
    coalesce_commands: int = field(default=1, metadata=_limits(1, 256))
    """Completions of deep queue pairs that share an interrupt; 1: none do.

    Of those for batches and large operations, and of the background class. A wish
    (NVMe base, clause 5.27.1.6): ``capabilities`` says what came of it.
    """
    coalesce_us: float = field(default=100.0, metadata=_limits(0, 25500))
    """How long the first of them waits for the others, in steps of 100 us."""
    executor: PollingExecutor | None = None
    """Threads that poll for it, shared with others; None: one of its own."""
    policy: Policy | PolicyName | None = None
    """How operations are scheduled and awaited: a name, or an object of your own.

    "latency": of the latency class, with a longer spin; large ones leave more room.
    "throughput": interrupts, shared on deep queues; large chunks, much at the device.
    "priority": classes by weighted round robin where there is one, small chunks.
    "adaptive": as without one. What else is given here goes before what it chooses.
    """
    io_class: IoClass | None = None
    """Class of operations that do not say; None: the policy's, or normal."""
    scheduling: Scheduling = "classes"
    """"fifo": first in, first out, whatever the class or size."""
    chunk: int = field(default=256 << 10, metadata=_limits(64 << 10, 1 << 30))
    """Bytes of a command of the background class, and of large operations while small
    ones are under way; a power of two."""
    bulk_inflight: int = field(default=32 << 20, metadata=_limits(1 << 16, 1 << 40))
    """Bytes of large operations (more than 128 KiB) at the device, for each loop."""
    background_inflight: int = field(
        default=4 << 20, metadata=_limits(1 << 16, 1 << 40)
    )
    """The same of the background class."""
    require_direct: bool = False
    """Raise CapabilityError unless a device does the DMA."""
    statistics: bool = True
    """Keep what each queue pair did: latencies by class, command and size."""
    statistics_segment: bool = True
    """Let ``aiougds top`` see it: a file in the user's runtime directory, mode 0600."""
    gpu_cache_bytes: int = field(default=16 << 30, metadata=_limits(0, 1 << 62))
    """GPU memory that ``register(..., cached=True)`` keeps registered, at most."""
    gpu_cache_entries: int = field(default=256, metadata=_limits(1, 1 << 20))
    """Allocations that it keeps registered, at most."""


def one_of(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a value that is not one of ``choices``, and list them."""
    known = choices if isinstance(choices, tuple) else tuple(choices)
    if value not in known:
        raise OptionError(
            f"{name}={value!r} is not known; {suggest(str(value), known)}"
        )


def check_wait(timeout_s: object) -> None:
    """Refuse what is no time to wait; 0 looks once, None waits for as long as it takes.

    An operation has one of its own, which is positive (``check_timeout``).
    """
    if timeout_s is None or (isinstance(timeout_s, (int, float)) and timeout_s >= 0):
        return
    raise OptionError(
        f"timeout_s={timeout_s!r}: a number of seconds is needed, 0 to look once, or "
        "None to wait for as long as it takes"
    )


def check_policy(policy: object) -> None:
    """Raise unless it is the name of a policy, or one of the user's own."""
    if isinstance(policy, str):
        one_of("policy", policy, POLICIES)
    elif isinstance(policy, type) or not callable(getattr(policy, "plan", None)):
        raise OptionError(
            f"policy={policy!r}: the name of one, or an object (no class) with "
            "plan(intent)"
        )


def suggest(word: str, known: Iterable[str]) -> str:
    """Return "did you mean", where something is close, and all that there is."""
    choices = sorted(known)
    near = difflib.get_close_matches(word, choices, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}valid are: {', '.join(choices)}"


def _parse(name: str, raw: str, like: object) -> object:
    try:
        if isinstance(like, bool):
            return {"0": False, "1": True, "false": False, "true": True}[raw.lower()]
        if name in ("batch_queues", "vectors") or isinstance(like, int):
            return int(raw)
        if isinstance(like, float):
            return float(raw)
    except (KeyError, ValueError):
        raise OptionError(
            f"environment variable {ENVIRONMENT}{name.upper()}={raw!r} cannot be read "
            f"as a {type(like).__name__}"
        ) from None
    return raw


def runtime_folder(environ: Mapping[str, str] = os.environ) -> str:
    """Return the user's runtime directory; empty: there is none."""
    return environ.get("XDG_RUNTIME_DIR", "")


def max_connections(environ: Mapping[str, str] = os.environ) -> int:
    """Return how many streams can wait on a GPU at a time, as CUDA was told; 0: not."""
    raw = environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "").strip()
    return min(int(raw), 32) if raw.isdecimal() else 0


def _interrupt_mode(environ: Mapping[str, str]) -> bool:
    raw = environ.get(INTERRUPT_MODE, "")
    try:
        return _WORDS[raw.lower()]
    except KeyError:
        raise OptionError(
            f"environment variable {INTERRUPT_MODE}={raw!r} is neither 1, on, true or "
            "yes, nor 0, off, false or no"
        ) from None


def _check(name: str, value: object, default: object, limits: object) -> None:
    if name in ("batch_queues", "vectors", "completion") and value is None:
        return
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise OptionError(f"{name}={value!r}: True or False is needed")
    elif isinstance(limits, tuple):
        whole = name in ("batch_queues", "vectors") or isinstance(default, int)
        if isinstance(value, bool) or not isinstance(
            value, int if whole else (int, float)
        ):
            kind = "an integer" if whole else "a number"
            raise OptionError(f"{name}={value!r}: {kind} is needed")
        low, high = cast("tuple[float, float]", limits)
        if not low <= value <= high:
            raise OptionError(f"{name}={value!r} is outside {low:g} .. {high:g}")


_FREE: Final = ("executor", "policy", "io_class")


def _chosen(given: OpenKeywords, environ: Mapping[str, str]) -> dict[str, object]:
    """Return what the policy chooses; one of the user's own need not have a preset."""
    policy = given.get("policy", environ.get(ENVIRONMENT + "POLICY"))
    if policy is None:
        return {}
    check_policy(policy)
    if isinstance(policy, str):
        return PRESETS[policy].chosen()
    preset = getattr(policy, "preset", NO_PRESET)
    if not isinstance(preset, Preset):
        raise OptionError(f"policy {policy!r}: its preset is {preset!r}, no Preset")
    return preset.chosen()


def open_options(
    given: OpenKeywords, environ: Mapping[str, str] = os.environ
) -> OpenOptions:
    """Merge arguments, environment and defaults, and check every value."""
    known = {f.name: f for f in fields(OpenOptions)}
    for name in given:
        if name not in known:
            raise OptionError(f"open() has no option {name!r}; {suggest(name, known)}")
    values: dict[str, object] = {}
    chosen = _chosen(given, environ)
    for name, spec in known.items():
        value = given.get(name, chosen.get(name, spec.default))
        raw = environ.get(ENVIRONMENT + name.upper())
        if name not in given and raw is not None:
            value = _parse(name, raw, spec.default)
        elif name == "mode" and not given.keys() & {"mode", "completion"}:
            value = "interrupt" if _interrupt_mode(environ) else value
        if name in _FREE:
            values[name] = value
            continue
        _check(name, value, spec.default, spec.metadata.get("limits"))
        values[name] = value
    one_of("mode", values["mode"], MODES)
    if values["completion"] is not None:
        one_of("completion", values["completion"], MODES)
        if "mode" in given and given["mode"] != values["completion"]:
            raise OptionError(
                f"mode={values['mode']!r} and completion={values['completion']!r} "
                "contradict each other; give one of them"
            )
        values["mode"] = values["completion"]
    one_of("arbitration", values["arbitration"], get_args(Arbitration))
    one_of("queue_priority", values["queue_priority"], PRIORITIES)
    one_of("scheduling", values["scheduling"], get_args(Scheduling))
    if values["io_class"] is not None:
        one_of("io_class", values["io_class"], IO_CLASSES)
    # typed: each was looked at above
    options = OpenOptions(**values)  # type: ignore[arg-type]
    if options.chunk & (options.chunk - 1):
        raise OptionError(f"chunk={options.chunk}: a power of two is needed")
    if options.batch_queues is not None and options.batch_queues >= options.queues:
        raise OptionError(
            f"batch_queues={options.batch_queues} leaves no general queue pair of "
            f"queues={options.queues}; ask for more queues or fewer batch queues"
        )
    return options
