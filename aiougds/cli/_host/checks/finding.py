"""A finding of ``aiougds check``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: ``fail`` stops the use of a real drive, ``warn`` makes it worse."""

    name: str
    status: Status
    text: str
    fix: str = ""


def ok(name: str, text: str) -> Finding:
    """All right."""
    return Finding(name, "ok", text)


def warn(name: str, text: str, fix: str) -> Finding:
    """It works, with less."""
    return Finding(name, "warn", text, fix)


def fail(name: str, text: str, fix: str) -> Finding:
    """It does not work."""
    return Finding(name, "fail", text, fix)
