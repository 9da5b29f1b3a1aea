"""Running operations in plain threads, and what is needed around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

from aiougds._completion import refuse_inside_loop, run_blocking
from aiougds._errors import BatchError, ClosedError, RegistrationBusyError, UGDSError
from aiougds._export import Export, export
from aiougds._pinned import PinnedMemory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import TracebackType
    from typing import SupportsIndex

    from aiougds._batch import Batch as AsyncBatch
    from aiougds._batch import BatchItem
    from aiougds._completed import AsCompleted as AsyncAsCompleted
    from aiougds._device import Device
    from aiougds._pinned import OnDevice, RegistrationSlice

T = TypeVar("T")


async def awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


async def called(work: Callable[[], T]) -> T:
    return work()


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run what is no operation of this thread's channel."""
    refuse_inside_loop()
    return run_blocking(awaited(work))


def operate(device: Device, work: Callable[[], Awaitable[T]]) -> T:
    """Run an operation; the channel's lock keeps others from closing it meanwhile."""
    refuse_inside_loop()
    device.check_open()
    channel = run_blocking(called(device.channel))
    with channel.lock:
        if device.limbo:  # no loop has taken late completions in the meantime
            channel.reap()
        if channel.closed:
            raise device.refusal() or ClosedError("this thread's channel was closed")
        try:
            return run_blocking(awaited(work))
        except (UGDSError, BatchError, StopAsyncIteration):
            raise
        except BaseException:
            # Of a signal's handler, perhaps right behind the call of C that started
            # an operation: it ends before the caller hears of the exception.
            channel.settle()
            raise


class Registration(PinnedMemory):
    """Memory that a controller reads and writes directly. Made by ``register()``."""

    __slots__ = ()

    def map(self, target: OnDevice) -> None:
        """Make the memory reachable for another controller too."""
        run(lambda: self.map_on(target._device))

    def export_dmabuf(self) -> Export:
        """Export its memory; as :meth:`aiougds.Registration.export_dmabuf`."""
        return export(self)

    def close(self, timeout_s: float | None = None) -> None:
        """Unmap it; as :meth:`aiougds.Registration.aclose`."""
        run(lambda: self.close_when_idle(timeout_s))

    def __enter__(self) -> Self:
        run(self.ready)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except RegistrationBusyError:
            self.abandon()
            raise


class Batch:
    """A reusable batch, for the thread that first uses it; as the awaitable one."""

    __slots__ = ("_batch", "_device")

    def __init__(self, batch: AsyncBatch, device: Device) -> None:
        self._batch = batch
        self._device = device

    @property
    def capacity(self) -> int:
        """Operations at a time."""
        return self._batch.capacity

    @property
    def pending(self) -> int:
        """Operations submitted and not harvested."""
        return self._batch.pending

    @property
    def prepared(self) -> int:
        """Operations prepared and not submitted."""
        return self._batch.prepared

    def read(
        self,
        buf: PinnedMemory | RegistrationSlice,
        *,
        offset: SupportsIndex,
        nbytes: SupportsIndex | None = None,
        cookie: object = None,
    ) -> None:
        """Prepare a read."""
        self._batch.read(buf, offset=offset, nbytes=nbytes, cookie=cookie)

    def write(
        self,
        buf: PinnedMemory | RegistrationSlice,
        *,
        offset: SupportsIndex,
        nbytes: SupportsIndex | None = None,
        fua: bool = False,
        cookie: object = None,
    ) -> None:
        """Prepare a write."""
        self._batch.write(buf, offset=offset, nbytes=nbytes, fua=fua, cookie=cookie)

    def flush(self, *, cookie: object = None) -> None:
        """Prepare a flush."""
        self._batch.flush(cookie=cookie)

    def submit(self, *, timeout_s: float | None = None) -> int:
        """Send all that is prepared; as :meth:`aiougds.Batch.submit`."""
        return operate(
            self._device,
            lambda: called(lambda: self._batch.submit(timeout_s=timeout_s)),
        )

    def harvest(
        self,
        min: int = 1,  # noqa: A002
        max: int | None = None,  # noqa: A002
        timeout_s: float | None = None,
    ) -> list[BatchItem]:
        """Take results; as :meth:`aiougds.Batch.harvest`."""
        return operate(self._device, lambda: self._batch.harvest(min, max, timeout_s))

    def __iter__(self) -> Iterator[BatchItem]:
        """Iterate over the results of all that is in flight, as they end."""
        while items := self.harvest(1):
            yield from items

    def discard(self) -> None:
        """Drop what is prepared and not submitted."""
        self._batch.discard()

    def cancel(self) -> None:
        """Ask for the end of all that is in flight."""
        if not self._device.ended:
            operate(self._device, lambda: called(self._batch.cancel))

    def close(self) -> None:
        """Cancel what is in flight, wait until the device let go of it, and close."""
        if not self._device.ended:
            operate(self._device, self._batch.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<blocking {self._batch!r}>"


class AsCompleted:
    """Iterator over ``(index, result)`` in the order of completion."""

    __slots__ = ("_device", "_inner")

    def __init__(self, inner: AsyncAsCompleted, device: Device) -> None:
        self._inner = inner
        self._device = device

    def __enter__(self) -> Self:
        operate(self._device, self._inner.__aenter__)
        return self

    def __exit__(self, *_exc: object) -> None:
        operate(self._device, lambda: self._inner.__aexit__(None, None, None))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, int | UGDSError]:
        try:
            return operate(self._device, self._inner.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"
