"""Where it runs: the device, the machine, and what the figures can say about either."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiougds import Namespace
    from aiougds.cli._suites.sides import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine, and how busy it was when it began."""

    aiougds: str
    python: str
    loop: str
    system: str
    processor: str
    cpus: int
    virtual: bool
    load: tuple[float, float, float]
    """The load averages of 1, 5 and 15 minutes, as it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What was moved from, or to."""

    address: str
    transport: str
    model: str
    nbytes: int
    memory: str
    label: str


def machine(loop: str) -> Machine:
    """Describe this machine."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    rows = [row.partition(":") for row in info.splitlines()]
    values = {name.strip(): value.strip() for name, _, value in reversed(rows)}
    return Machine(
        aiougds=version("aiougds"),
        python=platform.python_version(),
        loop=loop_name(loop),
        system=platform.platform(),
        processor=values.get("model name", platform.machine()),
        cpus=len(os.sched_getaffinity(0)),
        virtual="hypervisor" in values.get("flags", "").split(),
        load=os.getloadavg(),
    )


def loop_name(loop: str) -> str:
    """Return the kind of loop, and the version of its package."""
    if loop == "asyncio":
        return loop
    return f"{loop} {version(loop)}"


def device(ns: Namespace, place: Place, gpu: str = "") -> Device:
    """Describe a namespace, and what can be learnt from measuring it."""
    info, in_force = ns.controller.info, ns.controller.capabilities
    return Device(
        address=place.shown,
        transport=in_force.transport,
        model=info.model,
        nbytes=ns.size,
        memory=gpu or place.device or "host",
        label=label(in_force.transport, info.model, place),
    )


def label(transport: str, model: str, place: Place) -> str:
    """Say in a sentence what it is."""
    if transport == "emu":
        if "latency=" in place.address:
            return (
                "EMBEDDED CONTROLLER, a model with simulated latencies: it measures "
                "the engine and the event loop, not an SSD"
            )
        where = "the page cache" if place.path else "memory"
        return (
            f"EMBEDDED CONTROLLER over {where}: it measures the engine, the event loop "
            f"and {where}, not an SSD"
        )
    if "QEMU" in model.upper():
        return (
            f"EMULATED DRIVE ({model}): ratios within this run may mean something, "
            "absolute figures do not"
        )
    return f"DEVICE {model}"


def show_machine(machine: Machine) -> str:
    """Return it in a line."""
    kind = "virtual machine" if machine.virtual else "machine"
    load = ", ".join(f"{value:.2f}" for value in machine.load)
    return (
        f"{kind} with {machine.cpus} CPUs ({machine.processor}), {machine.system}, "
        f"Python {machine.python}, {machine.loop}, aiougds {machine.aiougds}, load "
        f"{load} at the beginning"
    )


def command() -> list[str]:
    """Return how it was started."""
    return ["aiougds", *sys.argv[1:]]
