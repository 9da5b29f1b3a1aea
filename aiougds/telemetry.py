"""Spans for OpenTelemetry: ``pip install 'aiougds[otel]'``.

.. code-block:: python

    import aiougds.telemetry

    aiougds.telemetry.instrument()

From then on every read, write, flush and so on of every namespace is a span of kind
client, ``nvme.read`` and the like, within the span that is current where it is
awaited. Until then, and after :func:`uninstrument`, it costs nothing.

One that failed or was cancelled has the status "error".
Attributes: ``system.device`` (the address), ``disk.io.direction``, ``error.type`` as
the semantic conventions name them; ``nvme.namespace.id``, ``nvme.offset``,
``nvme.bytes`` (moved), ``nvme.items``, ``nvme.status`` beside them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, cast

from aiougds import __version__
from aiougds import _public as _public  # what errors are called
from aiougds._errors import CapabilityError, NVMeError
from aiougds._namespace import Namespace

try:
    from opentelemetry import trace
except ImportError as error:
    raise CapabilityError(
        "aiougds.telemetry needs opentelemetry-api: pip install 'aiougds[otel]' "
        f"({error})"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from opentelemetry.trace import Span, Tracer, TracerProvider

__all__ = ["instrument", "uninstrument"]

NAME: Final = "aiougds"
DIRECTIONS: Final = {
    "read": "read", "read_many": "read", "compare": "read", "verify": "read",
    "write": "write", "write_many": "write", "write_zeroes": "write",
    "deallocate": "", "flush": "",
}  # fmt: skip
_plain: Final[dict[str, object]] = {}


def instrument(tracer_provider: TracerProvider | None = None) -> None:
    """Make spans from now on, with ``tracer_provider``; None: with the global one.

    Not of batches, ``as_completed`` and operations in the order of a GPU stream.
    Calling it twice changes the provider.
    """
    uninstrument()
    tracer = trace.get_tracer(NAME, __version__, tracer_provider=tracer_provider)
    for name, direction in DIRECTIONS.items():
        _plain[name] = getattr(Namespace, name)
        setattr(Namespace, name, _traced(tracer, name, direction))


def uninstrument() -> None:
    """Make no more spans."""
    while _plain:
        name, method = _plain.popitem()
        setattr(Namespace, name, method)


def _traced(
    tracer: Tracer, name: str, direction: str
) -> Callable[..., Awaitable[object]]:
    method: Callable[..., Awaitable[object]] = getattr(Namespace, name)

    @functools.wraps(method)
    async def run(ns: Namespace, *args: object, **keywords: object) -> object:
        attributes: dict[str, str | int] = {
            "system.device": ns.controller.address,
            "nvme.namespace.id": ns.nsid,
        }
        if direction:
            attributes["disk.io.direction"] = direction
        offset = keywords.get("offset")
        if isinstance(offset, int):
            attributes["nvme.offset"] = offset
        with tracer.start_as_current_span(
            f"nvme.{name}", kind=trace.SpanKind.CLIENT, attributes=attributes
        ) as span:
            try:
                result = await method(ns, *args, **keywords)
            except BaseException as error:
                _failed(span, error)
                raise
            _ended(span, result)
            return result

    return run


def _failed(span: Span, error: BaseException) -> None:
    name = type(error).__qualname__
    span.set_attribute("error.type", name)
    if not isinstance(error, Exception):  # a cancel; of others the span sees to it
        span.set_status(trace.Status(trace.StatusCode.ERROR, name))
    if isinstance(error, NVMeError):
        span.set_attribute("nvme.status", f"{error.status:#x}")


def _ended(span: Span, result: object) -> None:
    if isinstance(result, int):
        span.set_attribute("nvme.bytes", result)
    elif isinstance(result, list):
        moved = cast("list[int]", result)
        span.set_attribute("nvme.items", len(moved))
        span.set_attribute("nvme.bytes", sum(moved))
