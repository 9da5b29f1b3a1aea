"""What a check is: a named function that gets the ground it stands on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from vm.guest.ground import Ground

Function = Callable[[Ground], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Check:
    """A named function, how long it may take, and what the kernel may say meanwhile."""

    name: str
    function: Function
    limit_s: float
    allows: tuple[str, ...]
    module: str


def check(
    *, name: str | None = None, limit_s: float = 20, allows: tuple[str, ...] = ()
) -> Callable[[Function], Check]:
    """Make a check of a function, coroutine function or not.

    It fails by raising, by taking longer than ``limit_s``, and by a kernel message that
    is a fault, a splat or a complaint of ``ugds_drv``, unless one of the regular
    expressions in ``allows`` is found in that message.
    """

    def make(function: Function) -> Check:
        own = name or function.__name__
        return Check(own, function, limit_s, allows, function.__module__)

    return make


def in_module(module: str) -> Iterator[Check]:
    """Return a module's own checks in the order of their definition.

    Those that are made in a loop are put into a tuple or a list.
    """
    for value in vars(import_module(module)).values():
        listed = (
            cast("Sequence[object]", value)
            if isinstance(value, list | tuple)
            else (value,)
        )
        for item in listed:
            if isinstance(item, Check) and item.module == module:
                yield item


def checks_in(modules: tuple[str, ...]) -> dict[str, Check]:
    """Return the checks of several modules by name."""
    found: dict[str, Check] = {}
    for module in modules:
        for item in in_module(module):
            if found.setdefault(item.name, item) is not item:
                raise ValueError(f"two checks are named {item.name}: in {modules}")
    return found
