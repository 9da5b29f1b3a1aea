"""Every test on every loop, in every completion mode, with stepping and without.

A test that takes ``world`` is a coroutine function (or a plain one that calls
``world.run``). It runs on pairings that cover every pair of loop, mode and stepping;
marked ``core`` on all of them, marked ``few`` on four that cover every value.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import uvloop
from helpers.matrix import Extent, places
from helpers.of_each import chosen_of_each
from helpers.world import World
from hypothesis import HealthCheck, settings
from soft_gpu.fixtures import (  # noqa: F401 (fixtures)
    pytest_runtest_makereport,
    reserve_rocm,
    soft_cuda,
    soft_cuda_library,
    soft_gpu,
    soft_hip,
    soft_hip_library,
    soft_libraries,
)

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
MIB = 1 << 20

# The same examples in every run; a failure prints what reproduces it.
settings.register_profile(
    "same",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("same")

# Where a shell runs the tests in the background it is ignored, by their children too.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-fault-table",
        action="store_true",
        help="write docs/reference/faults.md from what tests/faults has shown",
    )
    parser.addoption(
        "--of-each",
        type=int,
        metavar="N",
        help="run at most N of the parameters of each test, the same ones every time",
    )
    parser.addoption(
        "--real-gpu",
        action="store_true",
        help="tests/gpu: use a real NVIDIA GPU in place of the software one",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "few: on four worlds that cover every value")
    if not config.getoption("--real-gpu"):
        reserve_rocm(config)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what wants a real GPU where there is none, and the reverse."""
    wrong = wants_software_gpu if config.getoption("--real-gpu") else wants_real_gpu
    keep_only(config, items, [item for item in items if not wrong(item)])


@pytest.hookimpl(specname="pytest_collection_modifyitems", trylast=True)
def pytest_keep_some_of_each(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Do ``--of-each``, after ``-m`` and ``-k``."""
    count: int | None = config.getoption("--of-each")
    if count is not None:
        chosen = chosen_of_each([item.nodeid for item in items], count)
        keep_only(config, items, [item for item in items if item.nodeid in chosen])


def keep_only(
    config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]
) -> None:
    """Deselect the others; pytest counts them in its last line."""
    left = set(items) - set(kept)
    if left:
        config.hook.pytest_deselected(items=[one for one in items if one in left])
        items[:] = kept


def pytest_collection_finish() -> None:
    """Look for garbage in what tests leave, not in what was there before them.

    Nine thousand tests are a large heap, and each on a GPU collects in the end.
    """
    gc.collect()
    gc.freeze()


def wants_real_gpu(item: pytest.Item) -> bool:
    return item.get_closest_marker("gpu") is not None


def wants_software_gpu(item: pytest.Item) -> bool:
    if item.get_closest_marker("software"):
        return True
    return bool({"soft_cuda", "soft_hip"} & set(getattr(item, "fixturenames", ())))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "world" in metafunc.fixturenames:
        marks = {mark.name for mark in metafunc.definition.iter_markers()}
        extent: Extent = (
            "all" if "core" in marks else "few" if "few" in marks else "pairs"
        )
        cells = places(extent, metafunc.function.__name__)
        if "tasks" in marks:
            cells = [cell for cell in cells if cell.loop != "blocking"]
        metafunc.parametrize("world", cells, ids=map(str, cells), indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Where the test runs; see :class:`helpers.world.World`."""
    made = World(request.param)
    yield made
    made.finish()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function that takes ``world`` on that world's loop."""
    made = pyfuncitem.funcargs.get("world")
    if not isinstance(made, World) or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    made.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


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
