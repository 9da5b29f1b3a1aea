"""A pairwise matrix of loops, completion modes and stepping; less if marked ``few``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol, Unpack

import pytest
from life import live as life

from aiougds import Mode, Namespace, OpenKeywords

BACKENDS = {
    "asyncio": ("asyncio", {"use_uvloop": False}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}


class Case(NamedTuple):
    """One cell of the matrix."""

    loop: str
    mode: Mode
    step: int


# Every pair of two values of different columns is there.
CASES = (
    Case("asyncio", "adaptive", 1),
    Case("uvloop", "adaptive", 0),
    Case("trio", "adaptive", 1),
    Case("asyncio", "interrupt", 0),
    Case("uvloop", "interrupt", 1),
    Case("trio", "interrupt", 0),
    Case("asyncio", "poll", 1),
    Case("uvloop", "poll", 0),
    Case("trio", "poll", 1),
    Case("asyncio", "inline", 0),
    Case("uvloop", "inline", 1),
    Case("trio", "inline", 0),
)


class Live(Protocol):
    """Opens a checked namespace: ``async with live("mdts=1", depth=2) as ns``."""

    def __call__(
        self, query: str = "", **options: Unpack[OpenKeywords]
    ) -> AbstractAsyncContextManager[Namespace]: ...


FEW = (CASES[0], CASES[4], CASES[8], CASES[9])  # every value


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        few = metafunc.definition.get_closest_marker("few") is not None
        metafunc.parametrize(
            "case",
            FEW if few else CASES,
            ids=lambda c: f"{c.loop}-{c.mode}-step{c.step}",
            indirect=True,
        )


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    cell: Case = request.param
    return cell


@pytest.fixture
def anyio_backend(case: Case) -> tuple[str, dict[str, bool]]:
    return BACKENDS[case.loop]


@pytest.fixture
def mode(case: Case) -> Mode:
    return case.mode


@pytest.fixture
def live(case: Case) -> Live:
    """Return the opener for this cell of the matrix."""

    def opened(
        query: str = "", **options: Unpack[OpenKeywords]
    ) -> AbstractAsyncContextManager[Namespace]:
        options.setdefault("mode", case.mode)
        return life.live(query, step=case.step, **options)

    return opened


@pytest.fixture
def address(case: Case) -> Callable[..., str]:
    """Return the maker of addresses for this cell of the matrix."""

    def make(query: str = "") -> str:
        return life.address(query, step=case.step)

    return make
