"""Runs the suites, one after another, and writes what was asked for."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from aiougds.cli._common import run_on
from aiougds.cli._console import Console
from aiougds.cli._suites.compare import show_changes
from aiougds.cli._suites.place import command, machine, show_machine
from aiougds.cli._suites.plot import draw, need_matplotlib
from aiougds.cli._suites.record import (
    Report,
    SideRecord,
    SuiteRecord,
    as_json,
    read_json,
    write_csv,
    write_json,
)
from aiougds.cli._suites.scene import scene, surveyed
from aiougds.cli._suites.show import show_suite
from aiougds.cli._suites.sides import PEERS, Side, SpinningSide, our_sides
from aiougds.cli._suites.stream import stream_sides
from aiougds.cli._suites.suites import BY_NAME, Run

if TYPE_CHECKING:
    from aiougds.cli._suites.settings import Settings
    from aiougds.cli._suites.sides import Place
    from aiougds.cli._suites.suites import Suite

# The paper's device: 9 us for 4 KiB, 232 us for 1 MiB. No bytes move.
MODEL: Final = (
    "emu:?size=64MiB&data=none&step=0&threads=1&latency=9us&latency_per_kib=218ns"
)
MODEL_BYTES: Final = 64 << 20
OF_MODEL: Final = "the device of this suite is a model without data: give an ADDRESS"


def run_suites(settings: Settings, *, quiet: bool) -> int:
    """Run them; the exit status."""
    console = Console(quiet=quiet)
    old = None if settings.compare is None else read_json(settings.compare)
    if settings.plot is not None:
        need_matplotlib()
    about = machine(settings.loop)
    console.line(show_machine(about), style="bold")
    if about.load[0] > 0.5:
        console.line("other programs run on this machine: expect noise")
    console.line()
    records: list[SuiteRecord] = []
    report = Report(
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command(),
        machine=about,
        repeat=settings.pace.repeat,
        duration_s=settings.pace.duration_s,
        warmup_s=settings.pace.warmup_s,
        suites=records,
    )
    with scene(settings) as place:
        place = survey(settings, place)
        for name in settings.suites:
            suite = BY_NAME[name]
            records.append(run_suite(settings, suite, place))
            show_suite(console, records[-1], suite.shown)
    told = as_json(report)
    if settings.json is not None:
        write_json(settings.json, told)
    if settings.csv is not None:
        write_csv(settings.csv, told)
    if settings.plot is not None:
        for path in draw(settings.plot, told):
            console.line(f"drawn: {path}")
    if old is not None:
        show_changes(console, old, told)
    if quiet:
        console.json(told)
    return 0


def survey(settings: Settings, place: Place) -> Place:
    """Return the place with the bytes that are used of it."""
    found: list[Place] = []

    async def work() -> int:
        found.append(await surveyed(settings, place))
        return 0

    run_on(settings.loop, work)
    return found[0]


def run_suite(settings: Settings, suite: Suite, place: Place) -> SuiteRecord:
    """Run one, by everybody who can."""
    if suite.name == "poll" and settings.address is None:
        place = replace(
            place, address=MODEL, path="", no_path=OF_MODEL, temporary=False,
            span=MODEL_BYTES,
        )  # fmt: skip
    sides = sides_of(settings, suite)
    why_not = {side.name: side.why_not(place) for side in sides}
    record = SuiteRecord(
        name=suite.name,
        section=suite.section,
        title=suite.title,
        method=suite.method,
    )
    failed: dict[str, str] = {}
    start = time.monotonic()
    able = [side for side in sides if not why_not[side.name]]
    run = Run(settings=settings, place=place, sides=able, record=record, failed=failed)
    suite.measure(run)
    record.seconds = round(time.monotonic() - start, 1)
    record.sides += [
        SideRecord(
            name=side.name,
            how=side.how,
            version=side.version,
            why_not=why_not[side.name] or failed.get(side.name, ""),
        )
        for side in sides
    ]
    return record


def sides_of(settings: Settings, suite: Suite) -> list[Side]:
    """Return ours, and the peers that were asked for."""
    if suite.name == "stream":
        return [*stream_sides(settings.peers)]
    ours = our_sides(settings.chosen(*(() if suite.all_modes else ("adaptive",))))
    if suite.name == "poll" and settings.modes is None:
        ours.append(SpinningSide())
    return [*ours, *(peer for peer in PEERS if peer.name in settings.peers)]
