"""What ends badly in a guest is reported, and as what it was."""

from __future__ import annotations

import pytest
from vm.bed.kernels import LINES
from vm.bed.launch import Options, launch
from vm.bed.machine import Machine
from vm.bed.run import GuestRun, Outcome

MODULE = "vm.checks.notices"
MISCHIEF = ("tests/vm/kmod/mischief/mischief.ko",)
DEAF = "hangs_and_is_deaf"

PASSED = {
    "passes",
    "passes_on_a_loop",
    "hears_good_news",
    "hears_others_warn",
    "is_warned_as_expected",
}
# What the report of each failure has to say.
FAILED = {
    "fails": ("AssertionError", "found = 18"),
    "fails_on_a_loop": ("OSError", "as a check may"),
    "hangs": ("not finished in 1 s", "threading.Event().wait()"),
    "hangs_on_a_loop": ("not finished in 1 s", "wait_for_nothing"),
    "is_warned": ("<4> ugds_drv 0000:00:00.0: a warning on request",),
    "sees_a_fault_of_the_iommu": ("DMAR: [DMA Write NO_PASID]",),
    "sees_a_splat": ("WARNING: ", "mischief: a splat on request"),
}


def run(kernel: str) -> GuestRun:
    return GuestRun(f"notices-{kernel}", (MODULE,), kernel=kernel, modules=MISCHIEF)


def told(outcome: Outcome, words: tuple[str, ...]) -> bool:
    return all(word in outcome.detail for word in words)


@pytest.mark.timeout(0)  # a guest ends in its own time
@pytest.mark.parametrize(
    "kernel", [pytest.param(LINES[0], marks=pytest.mark.full), LINES[1]]
)
def test_each_ending_is_reported(kernel: str, guest_options: Options) -> None:
    guest = run(kernel)
    names = [name for name in guest.all_checks() if name != DEAF]
    result = launch(guest, names, guest_options)
    states = {name: result.outcome(name).state for name in names}
    assert {name for name in names if states[name] == "passed"} == PASSED
    assert {name for name in names if states[name] == "failed"} == set(FAILED)
    for name, words in FAILED.items():
        assert told(result.outcome(name), words), result.outcome(name).detail
    down = result.outcome("takes_the_guest_down")
    assert told(down, ("panic", "while it ran"))
    assert told(result.outcome("comes_too_late"), ("panic", "before it began"))
    assert "panic" in result.trouble
    assert "Kernel panic" in result.console


@pytest.mark.timeout(0)  # a guest ends in its own time
@pytest.mark.parametrize(
    "kernel", [pytest.param(LINES[0], marks=pytest.mark.full), LINES[1]]
)
def test_dma_to_nowhere_is_noticed(kernel: str, guest_options: Options) -> None:
    """By the kernel's log alone: the controller knows no error of it."""
    machine = Machine(iommu=True)
    guest = GuestRun("stray", ("vm.checks.stray",), kernel=kernel, machine=machine)
    result = launch(guest, list(guest.all_checks()), guest_options)
    noticed = result.outcome("reads_where_nothing_is_mapped")
    assert noticed.state == "failed"
    assert "AssertionError" not in noticed.detail
    assert told(noticed, ("DMAR: [DMA Read", "fault addr 0x5a5a5000"))
    assert result.outcome("reads_there_and_may").state == "passed"


@pytest.mark.full
@pytest.mark.timeout(0)  # a guest ends in its own time
def test_check_that_cannot_be_stopped_ends_the_run(guest_options: Options) -> None:
    names = [DEAF, "comes_too_late"]
    result = launch(run(LINES[1]), names, guest_options)
    assert {result.outcome(name).state for name in names} == {"missing"}
    assert told(result.outcome(DEAF), ("runner ended with 1", "while it ran"))
    assert "hangs_and_is_deaf" in result.console


@pytest.mark.full
@pytest.mark.timeout(0)  # a guest ends in its own time
def test_module_that_does_not_load_fails_every_check(guest_options: Options) -> None:
    refused = (f"{MISCHIEF[0]} sound=yes", MISCHIEF[0])
    guest = GuestRun("refused", (MODULE,), modules=refused)
    result = launch(guest, ["passes"], guest_options)
    assert result.outcome("passes").state == "missing"
    assert "its modules were not all loaded" in result.trouble
    assert "insmod" in result.console
