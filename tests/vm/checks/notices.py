"""Checks that end in every way there is: the bed's own tests see that it notices."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path

from vm.guest.check import check
from vm.guest.ground import Ground

MISCHIEF = Path("/sys/kernel/debug/mischief/do")


@check()
def passes(ground: Ground) -> None:
    assert ground.plan["release"]


@check()
async def passes_on_a_loop(ground: Ground) -> None:
    await asyncio.sleep(0)


@check()
def fails(ground: Ground) -> None:
    expected, found = 17, 17 + len(ground.plan["slots"])
    assert expected == found


@check()
async def fails_on_a_loop(ground: Ground) -> None:
    await asyncio.sleep(0)
    raise OSError(5, "as a check may")


@check(limit_s=1)
def hangs(ground: Ground) -> None:
    threading.Event().wait()


async def wait_for_nothing() -> None:
    await asyncio.Event().wait()


@check(limit_s=1)
async def hangs_on_a_loop(ground: Ground) -> None:
    await wait_for_nothing()


@check()
def hears_good_news(ground: Ground) -> None:
    MISCHIEF.write_text("info")
    assert any("all is well" in message.text for message in ground.messages())


@check()
def hears_others_warn(ground: Ground) -> None:
    MISCHIEF.write_text("other")


@check()
def is_warned(ground: Ground) -> None:
    MISCHIEF.write_text("warn")


@check(allows=("ugds_drv .* a warning on request",))
def is_warned_as_expected(ground: Ground) -> None:
    MISCHIEF.write_text("warn")


@check()
def sees_a_fault_of_the_iommu(ground: Ground) -> None:
    MISCHIEF.write_text("dmar")


@check()
def sees_a_splat(ground: Ground) -> None:
    MISCHIEF.write_text("splat")


@check()
def takes_the_guest_down(ground: Ground) -> None:
    MISCHIEF.write_text("oops")


@check(limit_s=1)
def hangs_and_is_deaf(ground: Ground) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    threading.Event().wait()


@check()
def comes_too_late(ground: Ground) -> None:
    pass
