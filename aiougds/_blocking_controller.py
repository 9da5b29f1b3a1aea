"""The controller of the blocking interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aiougds._blocking_base import called, operate, run
from aiougds._completion_thread import thread_home
from aiougds._errors import ControllerBusyError
from aiougds._settled import settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

    from aiougds._admin import ErrorLogEntry, SmartLog
    from aiougds._buffer import ForeignMemory
    from aiougds._controller import Controller as AsyncController
    from aiougds._events import Event
    from aiougds._gpu_cache import RegistrationCache
    from aiougds._pinned import PinnedMemory, RegistrationSlice
    from aiougds._stats import (
        Capabilities,
        ControllerInfo,
        ControllerState,
        Quarantined,
        Statistics,
    )
    from aiougds._timeline import CommandTimeline


class ControllerCalls:
    """What a controller offers but its namespaces."""

    __slots__ = ("_controller", "_device")

    def __init__(self, controller: AsyncController) -> None:
        self._controller = controller
        self._device = controller._device

    def namespaces(self) -> list[int]:
        """Return the active namespace identifiers, ascending."""
        return self._controller.namespaces()

    @property
    def address(self) -> str:
        """The address it was opened with."""
        return self._controller.address

    @property
    def capabilities(self) -> Capabilities:
        """What is in force."""
        return run(lambda: called(lambda: self._controller.capabilities))

    @property
    def info(self) -> ControllerInfo:
        """Identity and limits."""
        return self._controller.info

    @property
    def state(self) -> ControllerState:
        """``live``, ``resetting``, ``wedged``, ``removed`` or ``closed``."""
        return self._controller.state

    @property
    def state_reason(self) -> str:
        """Why it is wedged or removed; empty while it is live."""
        return self._controller.state_reason

    @property
    def quarantine(self) -> tuple[Quarantined, ...]:
        """Memory that the device may still touch."""
        channel = thread_home().channels.get(id(self._device))
        if channel is not None:
            channel.reap_if_free()  # no loop has taken late completions meanwhile
        return self._controller.quarantine

    def settled(
        self,
        buf: ForeignMemory | PinnedMemory | RegistrationSlice | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Wait until the device let go; as :meth:`aiougds.Controller.settled`."""
        run(lambda: settled(self._device, buf, timeout_s))

    def statistics(self) -> Statistics:
        """Return the counters of this moment."""
        return self._controller.statistics()

    def trace(self, seconds: float) -> None:
        """Trace commands for so long; as :meth:`aiougds.Controller.trace`."""
        self._controller.trace(seconds)

    def timelines(self) -> tuple[CommandTimeline, ...]:
        """Return what was traced; as :meth:`aiougds.Controller.timelines`."""
        return self._controller.timelines()

    @property
    def registration_cache(self) -> RegistrationCache:
        """What ``register(..., cached=True)`` keeps registered."""
        return self._controller.registration_cache

    def clear_registration_cache(self) -> None:
        """Let go of that; as :meth:`aiougds.Controller.clear_registration_cache`."""
        run(self._controller.clear_registration_cache)

    def admin(
        self,
        opcode: int,
        *,
        nsid: int = 0,
        cdw10: int = 0,
        cdw11: int = 0,
        cdw12: int = 0,
        cdw13: int = 0,
        cdw14: int = 0,
        cdw15: int = 0,
        data: Buffer | None = None,
        nbytes: int = 0,
    ) -> tuple[int, bytes]:
        """Send an admin command; as :meth:`aiougds.Controller.admin`."""
        return operate(
            self._device,
            lambda: self._controller.admin(
                opcode,
                nsid=nsid,
                cdw10=cdw10,
                cdw11=cdw11,
                cdw12=cdw12,
                cdw13=cdw13,
                cdw14=cdw14,
                cdw15=cdw15,
                data=data,
                nbytes=nbytes,
            ),
        )

    def identify(self, cns: int = 1, nsid: int = 0) -> bytes:
        """Return an Identify structure; as :meth:`aiougds.Controller.identify`."""
        return operate(self._device, lambda: self._controller.identify(cns, nsid))

    def log_page(
        self, page: int, nbytes: int = 512, *, nsid: int = 0xFFFFFFFF
    ) -> bytes:
        """Return a log page; as :meth:`aiougds.Controller.log_page`."""
        return operate(
            self._device, lambda: self._controller.log_page(page, nbytes, nsid=nsid)
        )

    def smart_log(self) -> SmartLog:
        """Return the SMART / Health log."""
        return operate(self._device, self._controller.smart_log)

    def error_log(self, entries: int = 16) -> tuple[ErrorLogEntry, ...]:
        """Return the error log; as :meth:`aiougds.Controller.error_log`."""
        return operate(self._device, lambda: self._controller.error_log(entries))

    def events(self) -> Iterator[Event]:
        """Iterate over asynchronous events, waiting for each; ends at close."""
        events = self._controller.events()
        while True:
            try:
                event = run(events.__anext__)
            except StopAsyncIteration:
                return
            yield event

    def reset(self) -> None:
        """Reset it; as :meth:`aiougds.Controller.reset`."""
        run(self._controller.reset)

    def close(self, timeout_s: float | None = None, *, force: bool = False) -> None:
        """Close it; as :meth:`aiougds.Controller.aclose`."""
        run(lambda: self._controller.aclose(timeout_s, force=force))

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._controller.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        try:
            self.close()
        except ControllerBusyError:
            self._device.linger()
            raise

    def __repr__(self) -> str:
        return f"<blocking {self._controller!r}>"
