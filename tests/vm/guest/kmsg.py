"""The kernel's log as it grows, and what in it must not be there."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

WARNING = 4
OURS = re.compile(r"ugds_drv\b")
SPLAT = re.compile(
    r"DMAR:.*fault|^WARNING:|\bBUG\b|\bOops\b|^UBSAN:|^INFO: task .* blocked"
    r"|general protection fault|refcount_t:|KFENCE:|detected stall|soft lockup"
)
# What any module that is not Debian's own makes the kernel say.
USUAL = re.compile(r"loading out-of-tree module taints|module verification failed")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the kernel; smaller levels are worse."""

    level: int
    seconds: float
    text: str

    def __str__(self) -> str:
        return f"[{self.seconds:.3f}] <{self.level}> {self.text}"


def parse(record: str) -> Message:
    """Read one record of ``/dev/kmsg``: ``priority,number,microseconds,..;text``."""
    head, _, text = record.partition(";")
    priority, _, since, *_ = head.split(",")
    return Message(int(priority) & 7, int(since) / 1e6, text.split("\n", 1)[0])


def is_bad(message: Message) -> bool:
    """Whether a message fails the check during which it came."""
    if USUAL.search(message.text):
        return False
    ours = message.level <= WARNING and OURS.match(message.text)
    return bool(ours or SPLAT.search(message.text))


def bad_ones(messages: list[Message], allows: tuple[str, ...]) -> list[Message]:
    return [
        message
        for message in messages
        if is_bad(message)
        and not any(re.search(pattern, message.text) for pattern in allows)
    ]


class KernelLog:
    """Reads each message once."""

    __slots__ = ("_fd",)

    def __init__(self) -> None:
        self._fd = os.open("/dev/kmsg", os.O_RDWR | os.O_NONBLOCK)

    def say(self, text: str) -> None:
        """Put a line into the log: where a check begins can be seen in it."""
        os.write(self._fd, f"<6>vm: {text}\n".encode())

    def new(self) -> list[Message]:
        found: list[Message] = []
        while True:
            try:
                record = os.read(self._fd, 1 << 14)
            except BlockingIOError:
                return found
            except BrokenPipeError:
                lost = "BUG: the log ran over before it was read"
                found.append(Message(WARNING, 0.0, lost))
                continue
            found.append(parse(record.decode(errors="replace")))
