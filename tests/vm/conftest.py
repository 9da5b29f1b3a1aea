"""Guests run with ``--guests``; without, only the fast tests of the bed itself do."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from vm.bed.collect import Fleet, GuestNode, fleet_key, selected_by_run
from vm.bed.launch import Options
from vm.bed.needs import Missing, require
from vm.bed.run import GuestRun

RUNS = Path(__file__).parent / "runs"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("guests", "guests of tests/vm (nox -s vm)")
    group.addoption("--guests", choices=("quick", "full"), help="run guests")
    group.addoption("--accel", default="tcg", choices=("tcg", "kvm"))
    group.addoption("--keep-guests", action="store_true", help="keep disks of guests")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: not in the quick part of nox -s vm")


def how_much(config: pytest.Config) -> str | None:
    # Not known where this file was found only while collecting, as in a plain run.
    chosen: str | None = config.getoption("guests", None)
    return chosen


def options(config: pytest.Config) -> Options:
    accel: str = config.option.accel
    keep: bool = config.option.keep_guests
    return Options(accel, keep)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path == RUNS and not how_much(config) else None


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[GuestNode] | None:
    """Make a node of each run in a file's ``RUNS``."""
    if name != "RUNS" or not isinstance(obj, tuple):
        return None
    quick = how_much(collector.config) == "quick"
    several = cast("tuple[object, ...]", obj)
    runs = [run for run in several if isinstance(run, GuestRun)]
    chosen = [run for run in runs if run.quick or not quick]
    return [GuestNode.make(collector, run) for run in chosen]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    if how_much(config) == "quick":
        left_out = [item for item in items if item.get_closest_marker("full")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the guests of all that was chosen."""
    config = session.config
    if not how_much(config) or config.option.collectonly:
        return
    try:
        require()
    except Missing as error:
        raise pytest.UsageError(str(error)) from None
    fleet = config.stash[fleet_key] = Fleet(options(config))
    for node, names in selected_by_run(session.items).items():
        fleet.start(node.nodeid, node.run, names)


def pytest_sessionfinish(session: pytest.Session) -> None:
    fleet = session.config.stash.get(fleet_key, None)
    if fleet is not None:
        fleet.close()


@pytest.fixture(scope="session")
def guest_options(pytestconfig: pytest.Config) -> Options:
    """How guests are run in this session."""
    return options(pytestconfig)
