"""A machine whose DMA goes through copies: memory cannot be shared with the device."""

from __future__ import annotations

from vm.checks.kmod import node
from vm.guest.check import check
from vm.guest.ground import Ground


@check()
def memory_that_would_be_copied_is_refused(ground: Ground) -> None:
    ground.run(ground.program("kmod_calls"), node(ground), "copied")
