"""Objects of ``aiougds.blocking`` in the manner of the awaitable ones.

The same test can then run with and without an event loop: what is awaited there is a
plain call here that has ended before the await.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final

from aiougds.blocking import Batch

AWAITED: Final = {
    "aclose", "admin", "clear_registration_cache", "compare", "deallocate", "error_log",
    "flush", "harvest", "identify", "log_page", "map", "read", "read_many", "reset",
    "settled", "smart_log", "verify", "write", "write_many", "write_zeroes",
}  # fmt: skip
OF_BATCH: Final = {"aclose", "harvest"}
WRAPPED: Final = {
    "allocate",
    "as_completed",
    "batch",
    "export_dmabuf",
    "namespace",
    "region",
    "register",
    "register_dmabuf",
    "using",
}


def bare(value: object) -> object:
    """Return what the facade stands before, also inside pairs and lists."""
    if isinstance(value, Facade):
        return value.inner
    if type(value) is list:
        return [bare(item) for item in value]
    if type(value) is tuple:
        return tuple(bare(item) for item in value)
    return value


class Facade:
    """One object of ``aiougds.blocking``, awaitable."""

    __slots__ = ("inner",)

    def __init__(self, inner: object) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> object:
        if name == "controller":
            return Facade(self.inner.controller)  # type: ignore[attr-defined]
        value = getattr(self.inner, "close" if name == "aclose" else name)
        # A batch's read() prepares: there it is a plain call in both interfaces.
        if name in (AWAITED if not isinstance(self.inner, Batch) else OF_BATCH):
            return _awaitable(value)
        if name in WRAPPED:
            return _wrapping(value)
        return _bare_arguments(value) if callable(value) else value

    def __getitem__(self, key: slice) -> Facade:
        return Facade(self.inner[key])  # type: ignore[index]

    def __len__(self) -> int:
        return len(self.inner)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return repr(self.inner)

    async def __aenter__(self) -> Facade:  # noqa: PYI034 (of what was entered)
        return Facade(self.inner.__enter__())  # type: ignore[attr-defined]

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.inner.__exit__(exc_type, exc, tb)  # type: ignore[attr-defined]

    async def __aiter__(self) -> AsyncIterator[object]:
        for item in self.inner:  # type: ignore[attr-defined]
            yield item


def _awaitable(call: Callable[..., object]) -> Callable[..., object]:
    async def awaited(*args: object, **kwargs: object) -> object:
        return _bare_arguments(call)(*args, **kwargs)

    return awaited


def _wrapping(call: Callable[..., object]) -> Callable[..., object]:
    def wrapped(*args: object, **kwargs: object) -> Facade:
        return Facade(_bare_arguments(call)(*args, **kwargs))

    return wrapped


def _bare_arguments(call: Callable[..., object]) -> Callable[..., object]:
    def plain(*args: object, **kwargs: object) -> object:
        return call(*map(bare, args), **{key: bare(v) for key, v in kwargs.items()})

    return plain
