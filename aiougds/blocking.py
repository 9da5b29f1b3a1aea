"""The same without an event loop, for programs that use threads.

.. code-block:: python

    with aiougds.blocking.open("emu:data.bin?size=1GiB") as ns:
        with ns.register(bytearray(4096)) as reg:
            n = ns.read(reg, offset=0)

The names are those of the awaitable interface, with ``close`` for ``aclose``. Every
object may be used from any thread; each thread gets a channel of its own at its first
operation, and gives it back when it ends. A blocking call inside a running event loop
is refused. Ctrl-C interrupts a wait once the device has let go of the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from aiougds import _open
from aiougds import _public as _public  # what errors are called
from aiougds._blocking_base import AsCompleted, Batch, Registration, run
from aiougds._blocking_namespace import Controller, Namespace

if TYPE_CHECKING:
    from aiougds._options import OpenKeywords

__all__ = [
    "AsCompleted",
    "Batch",
    "Controller",
    "Namespace",
    "Registration",
    "open",
    "open_controller",
]


def open(  # noqa: A001
    address: str, *, nsid: int | None = None, **options: Unpack[OpenKeywords]
) -> Namespace:
    """Open a namespace, with a controller of its own; as :func:`aiougds.open`."""
    opening = _open.open(address, nsid=nsid, **options)
    return Namespace(run(lambda: opening))


def open_controller(address: str, **options: Unpack[OpenKeywords]) -> Controller:
    """Open a controller; as :func:`aiougds.open_controller`."""
    opening = _open.open_controller(address, **options)
    return Controller(run(lambda: opening))


for _kind in (AsCompleted, Batch, Controller, Namespace, Registration):
    _kind.__module__ = "aiougds.blocking"
del _kind
