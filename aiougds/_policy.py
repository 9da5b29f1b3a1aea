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
    io_class: IoClass
    policy: Policy | None  # asked each time
    spin_us: float | None = None
    chunk: int | None = None

    def flags(self, default: Mode) -> int:
        """Return them as C wants them; ``default`` is the controller's mode."""
        flags = mode_bits(self.mode, default) | CLASS_FLAGS[self.io_class]
        if self.spin_us is not None:
            flags |= (round(self.spin_us) + 1) << lib.UGDS_SPIN_SHIFT
        if self.chunk is not None:
            flags |= (self.chunk // CHUNK_UNIT).bit_length() - 1 << lib.UGDS_CHUNK_SHIFT
        return flags

    def stream_flags(self, default: Mode) -> int:
        """Return them for an operation on a stream, whose executor has no mode."""
        return STREAM_FLAGS[self.mode or default] | CLASS_FLAGS[self.io_class]

    def planned(
        self,
        intent: Intent,
        said: Said,
    ) -> How:
        """Return it for one operation; what the call says goes first."""
        policy, mode, io_class = said
        if mode is not None:
            one_of("mode", mode, MODES)
        if io_class is not None:
            one_of("io_class", io_class, IO_CLASSES)
        here = self if policy is None else choose(policy, None, None, self)
        plan: How | Plan = here
        if here.policy is not None and (mode is None or io_class is None):
            plan = here.policy.plan(intent)
            if not isinstance(plan, Plan):
                raise OptionError(f"policy {here.policy!r} returned {plan!r}, no Plan")
        return how_planned(plan, mode, io_class)


def how_planned(plan: How | Plan, mode: Mode | None, io_class: IoClass | None) -> How:
    """Return what a plan says; what was said beside it goes first."""
    mode, io_class = mode or plan.mode, io_class or plan.io_class
    return How(mode, io_class, None, plan.spin_us, plan.chunk)


def mode_bits(mode: Mode | None, default: Mode) -> int:
    """Return the flags that make an operation wait in that manner."""
    return 0 if mode is None or mode == default else MODE_FLAGS[mode]


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
        return how_planned(PLANS[policy], mode, io_class)
    if isinstance(policy, Plan):  # it need not be asked each time
        return how_planned(policy, mode, io_class)
    return How(mode, io_class or "normal", policy)


def how_opened(options: OpenOptions) -> How:
    """Return how the namespaces of a controller do things."""
    how = choose(options.policy, None, options.io_class, How(None, "normal", None))
    if isinstance(options.policy, str):
        # open() made what the preset says the controller's own
        return how._replace(mode=None, spin_us=None, chunk=None)
    return how
