"""Every test on every loop, and an embedded controller with stepping on and off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest
import uvloop

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
MIB = 1 << 20


def pytest_asyncio_loop_factories() -> dict[str, LoopFactory]:
    """Tests marked ``asyncio`` run once on each of these loops."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


BACKENDS = {
    "asyncio": ("asyncio", {"use_uvloop": False}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Tests marked ``anyio`` run once on each of these."""
    return BACKENDS[request.param]


@pytest.fixture(params=[1, 0], ids=["step", "nostep"])
def step(request: pytest.FixtureRequest) -> int:
    """Whether host threads that spin may step the embedded controller."""
    value: int = request.param
    return value


class EmuAddress:
    """Make addresses of embedded controllers: ``emu(path, lba=512)``."""

    __slots__ = ("_step",)

    def __init__(self, step: int) -> None:
        self._step = step

    def __call__(self, path: Path | str = "", **options: object) -> str:
        options = {"step": self._step, **options}
        if not path or not Path(path).exists():
            options.setdefault("size", 16 * MIB)
        return f"emu:{path}?{urlencode(options, safe=':,+[]')}"


@pytest.fixture
def emu(step: int) -> EmuAddress:
    """Return a maker of ``emu:`` addresses; 16 MiB in memory unless told otherwise."""
    return EmuAddress(step)
