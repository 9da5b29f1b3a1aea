"""Behaviours of the public API that every transport has.

Plain coroutine functions ``(address, tools)`` with plain asserts: pytest runs them over
the embedded controller (``test_embedded.py``), a guest of ``tests/vm`` over a device of
the kernel helper. They write to the namespace that they are given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from conformance import life, many, transfers
from conformance.tools import Tools

Behaviour = Callable[[str, Tools], Awaitable[None]]

BEHAVIOURS: Final[dict[str, Behaviour]] = {
    behaviour.__name__: behaviour
    for behaviour in (*transfers.BEHAVIOURS, *many.BEHAVIOURS, *life.BEHAVIOURS)
}
