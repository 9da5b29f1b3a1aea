"""QEMU's monitor, from inside: a check takes its own hardware away, or breaks it."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

PORTS = Path("/sys/class/virtio-ports")
LEAVING = ("Permission conflict", "Duplicate device ID")  # what refuses a second one
Reply = dict[str, object]


class QmpError(Exception):
    """QEMU refused a command; the text is its reason."""


class QmpSilent(Exception):
    """QEMU did not answer in time."""


def port() -> str:
    for path in sorted(PORTS.glob("vport*")):
        if (path / "name").read_text().strip() == "qmp":
            return f"/dev/{path.name}"
    raise QmpSilent(f"no port of {PORTS} is named qmp")


class Qmp:
    """One conversation with the monitor; events are kept until they are asked for."""

    __slots__ = ("_buffer", "_events", "_fd", "_number")

    def __init__(self) -> None:
        self._fd = os.open(port(), os.O_RDWR | os.O_NONBLOCK)
        self._buffer = b""
        self._events: list[Reply] = []
        self._number = 0
        self.execute("qmp_capabilities")

    def close(self) -> None:
        os.close(self._fd)

    def execute(self, command: str, **arguments: object) -> object:
        """Run a command; hyphens in the names of arguments are written ``_``."""
        given = {name.replace("_", "-"): value for name, value in arguments.items()}
        return self.send(command, given)

    def send(self, command: str, arguments: Reply, timeout_s: float = 30) -> object:
        self._number += 1
        message = {"execute": command, "arguments": arguments, "id": self._number}
        self._write(json.dumps(message).encode() + b"\n")
        for reply in self._messages(timeout_s):
            if reply.get("id") == self._number:
                if "error" in reply:
                    raise QmpError(f"{command}: {reply['error']}")
                return reply["return"]
            if "event" in reply:
                self._events.append(reply)
        raise QmpSilent(f"no answer to {command} in {timeout_s} s")

    def wait_event(self, name: str, timeout_s: float = 30) -> Reply:
        """Return the next event of a name; those before it are forgotten."""
        while self._events:
            event = self._events.pop(0)
            if event["event"] == name:
                return event
        for reply in self._messages(timeout_s):
            if reply.get("event") == name:
                return reply
        raise QmpSilent(f"no event {name} in {timeout_s} s")

    def human(self, line: str) -> str:
        """Run a command of the human monitor, such as ``qemu-io nv0-1 "..."``."""
        return str(self.execute("human-monitor-command", command_line=line)).strip()

    def device_add(self, device: Reply, timeout_s: float = 10) -> None:
        """Plug a device in; one of its name or disk that is leaving is awaited.

        The bus no longer shows it some time before QEMU has let go of its disk.
        """
        until = time.monotonic() + timeout_s
        while True:
            try:
                self.send("device_add", device)
                return
            except QmpError as error:
                leaving = any(text in str(error) for text in LEAVING)
                if not leaving or time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def device_del(self, name: str) -> None:
        self.execute("device_del", id=name)

    def qom_set(self, path: str, name: str, value: object) -> None:
        self.send("qom-set", {"path": path, "property": name, "value": value})

    def throttle(self, node: str, per_second: int) -> None:
        """Limit the I/Os of a block node made with ``throttle=True``; 0 is no limit."""
        self.qom_set(f"/objects/tg-{node}", "limits", {"iops-total": per_second})

    def hold_next(self, node: str, event: str = "read_aio", name: str = "held") -> None:
        """Hold the next I/O of a node made with ``suspend=True``.

        Let it go before the controller is reset: QEMU waits for it under its big lock.
        """
        self.human(f'qemu-io {node} "break {event} {name}"')

    def let_go(self, node: str, name: str = "held") -> None:
        self.human(f'qemu-io {node} "resume {name}"')

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                select.select([], [self._fd], [], 1)

    def _messages(self, timeout_s: float) -> Iterator[Reply]:
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            line, found, rest = self._buffer.partition(b"\n")
            if found:
                self._buffer = rest
                if line.strip():
                    yield json.loads(line)
            elif select.select([self._fd], [], [], 0.2)[0]:
                self._buffer += os.read(self._fd, 1 << 16)
