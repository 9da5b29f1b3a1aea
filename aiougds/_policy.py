"""Policies: of which class an operation is, and how its end is awaited.

A policy says so for each operation (:meth:`Policy.plan`). The built-in ones, by their
names, say the same for all, and choose defaults for ``open``: so they cost nothing
per operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aiougds._errors import OptionError
from aiougds._ffi import lib
from aiougds._options import IO_CLASSES, MODES, IoClass, Mode, check_policy, one_of

if TYPE_CHECKING:
    from aiougds._options import OpenOptions, PolicyName

CLASS_FLAGS: Final[dict[IoClass, int]] = {
    "latency": lib.UGDS_F_LATENCY,
    "normal": 0,
    "background": lib.UGDS_F_BACKGROUND,
}
MODE_FLAGS: Final[dict[Mode, int]] = {
    "adaptive": lib.UGDS_F_ADAPTIVE,
    "inline": lib.UGDS_F_SPIN,
    "interrupt": lib.UGDS_F_NOSPIN,
    "poll": lib.UGDS_F_POLL,
}

STREAM_FLAGS: Final[dict[Mode, int]] = {
    "adaptive": 0,
    "inline": 0,
    "interrupt": lib.UGDS_F_NOSPIN,
    "poll": lib.UGDS_F_POLL,
}
SPIN_MOST_US: Final = lib.UGDS_SPIN_MOST
CHUNK_UNIT: Final = 32 << 10
CHUNK_LEAST: Final = 64 << 10
CHUNK_MOST: Final = 1 << 30
ASK: Final = -1  # in their place: a policy is asked each time


class Intent(NamedTuple):
    """An operation that is about to start, as a policy sees it."""

    name: str
    """The method: "read", "write_many" and so on."""
    offset: int | None
    """Where in the namespace; None: at several places."""
    nbytes: int | None
    """How many bytes; None where only the memory knows."""


def _check_spin(value: object) -> None:
    if value is None:
        return
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 <= value <= SPIN_MOST_US
    ):
        raise OptionError(f"spin_us={value!r} is outside 0 .. {SPIN_MOST_US}")


def _check_chunk(value: object) -> None:
    if value is None:
        return
    if (
        not isinstance(value, int)
        or not CHUNK_LEAST <= value <= CHUNK_MOST
        or value & (value - 1)
    ):
        raise OptionError(
            f"chunk={value!r} is no power of two in {CHUNK_LEAST} .. {CHUNK_MOST}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a policy wants of an operation: its ``io_class``, and how it is awaited."""

    mode: Mode | None = None
    """How its end is awaited; None: as was chosen when the controller was opened."""
    io_class: IoClass = "normal"
    spin_us: float | None = None
    """How long it may be looked for in the modes that look; None: as was opened."""
    chunk: int | None = None
    """Bytes of its commands at most, if it is large or of the background class: a power
    of two. None, or more than the controller's: as was opened."""

    def __post_init__(self) -> None:
        if self.mode is not None:
            one_of("mode", self.mode, MODES)
        one_of("io_class", self.io_class, IO_CLASSES)
        _check_spin(self.spin_us)
        _check_chunk(self.chunk)

    def plan(self, intent: Intent, /) -> Plan:
        """Return itself, whatever ``intent`` says: it is a policy, too."""
        return self


class Policy(Protocol):
    """Decides about every operation of a handle; an object of the user's own.

    It may have an attribute ``preset``, a :class:`Preset`: what it chooses for
    ``open``, such as depths, completion mode, coalescing.
    """

    def plan(self, intent: Intent, /) -> Plan:
        """Return what to do with an operation, which ``intent`` describes.

        Called right before each, on its loop or thread, so it must neither wait nor
        compute for long; what it raises is raised to the caller, and nothing is sent.
        """
        ...


PLANS: Final[dict[PolicyName, Plan]] = {
    "latency": Plan(io_class="latency", spin_us=50),
    "throughput": Plan(mode="interrupt"),
    "priority": Plan(chunk=128 << 10),
    "adaptive": Plan(mode="adaptive"),
}


class Said(NamedTuple):
    """What a call says of how its operation is done; None: as its handle does."""

    policy: Policy | PolicyName | None = None
    mode: Mode | None = None
    io_class: IoClass | None = None


NOTHING_SAID: Final = Said()


class How(NamedTuple):
    """How the operations of a handle are done unless they say otherwise."""

    mode: Mode | None
    io_class: IoClass | None  # None: "normal", or what the policy says
    policy: Policy | None  # asked each time
    spin_us: float | None = None
    chunk: int | None = None

    def flags(self, default: Mode) -> int:
        """Return them as C wants them; ``default`` is the controller's mode."""
        return plan_flags(self, None, None, default)

    def stream_flags(self, default: Mode) -> int:
        """Return them for an operation on a stream, whose executor has no mode."""
        return plan_stream_flags(self, None, None, default)

    def words(self) -> str:
        """Return what of it differs from what there is without a word."""
        said = {
            "mode": self.mode,
            "class": None if self.io_class == "normal" else self.io_class,
            "policy": self.policy and type(self.policy).__qualname__,
            "spin_us": self.spin_us,
            "chunk": self.chunk,
        }
        return "".join(f", {k} {v}" for k, v in said.items() if v is not None)

    def ask(
        self,
        intent: Intent,
        said: tuple[Policy | PolicyName | None, Mode | None, IoClass | None],
    ) -> tuple[How | Plan, Mode | None, IoClass | None]:
        """Return the plan of one operation, and what goes before what it says.

        What the call says goes first, then what was said with a policy that is asked.
        """
        policy, mode, io_class = said
        if mode is not None:
            one_of("mode", mode, MODES)
        if io_class is not None:
            one_of("io_class", io_class, IO_CLASSES)
        if policy is None:
            if self.policy is None:
                return self, mode, io_class
            policy = self.policy
            mode, io_class = mode or self.mode, io_class or self.io_class
        elif type(policy) is not Plan:
            check_policy(policy)
            if isinstance(policy, str):
                return PLANS[policy], mode, io_class
        return checked_plan(policy, policy.plan(intent)), mode, io_class


def checked_plan(policy: Policy, plan: object) -> Plan:
    """Return what a policy returned, or raise when that is no plan."""
    if not isinstance(plan, Plan):
        raise OptionError(f"policy {policy!r} returned {plan!r}, no Plan")
    return plan


def plan_flags(
    plan: How | Plan, mode: Mode | None, io_class: IoClass | None, default: Mode
) -> int:
    """Return what a plan says as C wants it; what was said beside it goes first.

    ``default`` is the controller's mode.
    """
    flags = CLASS_FLAGS[io_class or plan.io_class or "normal"]
    mode = mode or plan.mode
    if mode is not None and mode != default:
        flags |= MODE_FLAGS[mode]
    if plan.spin_us is None and plan.chunk is None:
        return flags
    return flags | _finer(plan)


def _finer(plan: How | Plan) -> int:
    flags = 0
    if plan.spin_us is not None:
        flags |= (round(plan.spin_us) + 1) << lib.UGDS_SPIN_SHIFT
    if plan.chunk is not None:
        flags |= (plan.chunk // CHUNK_UNIT).bit_length() - 1 << lib.UGDS_CHUNK_SHIFT
    return flags


def plan_stream_flags(
    plan: How | Plan, mode: Mode | None, io_class: IoClass | None, default: Mode
) -> int:
    """Return the same for an operation on a stream, whose executor has no mode."""
    flags = CLASS_FLAGS[io_class or plan.io_class or "normal"]
    return flags | STREAM_FLAGS[mode or plan.mode or default] | _finer(plan)


def choose(
    policy: Policy | PolicyName | None,
    mode: Mode | None,
    io_class: IoClass | None,
    like: How,
) -> How:
    """Return how a handle does things; what is None is as it was in ``like``."""
    if mode is not None:
        one_of("mode", mode, MODES)
    if io_class is not None:
        one_of("io_class", io_class, IO_CLASSES)
    if policy is None:
        return like._replace(mode=mode or like.mode, io_class=io_class or like.io_class)
    check_policy(policy)
    if isinstance(policy, str):
        policy = PLANS[policy]
    if isinstance(policy, Plan):  # it need not be asked each time
        mode, io_class = mode or policy.mode, io_class or policy.io_class
        return How(mode, io_class, None, policy.spin_us, policy.chunk)
    return How(mode, io_class, policy)


def how_opened(options: OpenOptions) -> How:
    """Return how the namespaces of a controller do things."""
    how = choose(options.policy, None, options.io_class, How(None, None, None))
    if isinstance(options.policy, str):
        # open() made what the preset says the controller's own
        return how._replace(mode=None, spin_us=None, chunk=None)
    return how
