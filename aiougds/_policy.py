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
    "adaptive": lib.UGDS_F_SPIN,
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
ASK: Final = -1  # in their place: a policy is asked each time


class Intent(NamedTuple):
    """An operation that is about to start, as a policy sees it."""

    name: str
    """The method: "read", "write_many" and so on."""
    offset: int | None
    """Where in the namespace; None: at several places."""
    nbytes: int | None
    """How many bytes; None where only the memory knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a policy wants of an operation: its ``io_class``, and how it is awaited."""

    mode: Mode | None = None
    """How its end is awaited; None: as was chosen when the controller was opened."""
    io_class: IoClass = "normal"

    def __post_init__(self) -> None:
        if self.mode is not None:
            one_of("mode", self.mode, MODES)
        one_of("io_class", self.io_class, IO_CLASSES)


class Policy(Protocol):
    """Decides about every operation of a handle; an object of the user's own."""

    def plan(self, intent: Intent, /) -> Plan:
        """Return what to do with an operation, which ``intent`` describes.

        Called right before each, on its loop or thread, so it must neither wait nor
        compute for long; what it raises is raised to the caller, and nothing is sent.
        """
        ...


PLANS: Final[dict[PolicyName, Plan]] = {
    "latency": Plan(io_class="latency"),
    "throughput": Plan(mode="interrupt"),
    "priority": Plan(),
    "adaptive": Plan(),
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

    def flags(self, default: Mode) -> int:
        """Return them as C wants them; ``default`` is the controller's mode."""
        return mode_bits(self.mode, default) | CLASS_FLAGS[self.io_class]

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
        return How(mode or plan.mode, io_class or plan.io_class, None)


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
        return How(mode or like.mode, io_class or like.io_class, like.policy)
    check_policy(policy)
    if isinstance(policy, str):
        plan = PLANS[policy]
        return How(mode or plan.mode, io_class or plan.io_class, None)
    return How(mode, io_class or "normal", policy)


def how_opened(options: OpenOptions) -> How:
    """Return how the namespaces of a controller do things."""
    how = choose(options.policy, None, options.io_class, How(None, "normal", None))
    # open() made the preset's mode the controller's own
    return how._replace(mode=None)
