"""Which words of the kernel fail a check."""

from __future__ import annotations

import pytest
from vm.guest.kmsg import Message, bad_ones, is_bad, parse


def test_record_is_read() -> None:
    record = "12,339,5140900,-;ugds_drv 0000:00:0a.0: x; y\n SUBSYSTEM=pci\n"
    assert parse(record) == Message(4, 5.1409, "ugds_drv 0000:00:0a.0: x; y")


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (4, "ugds_drv 0000:00:0a.0: device is gone"),
        (3, "ugds_drv: cannot register"),
        (3, "DMAR: [DMA Read NO_PASID] Request device [00:0a.0] fault addr 0x1000"),
        (4, "WARNING: CPU: 1 PID: 1 at lib/refcount.c:28 refcount_warn_saturate"),
        (1, "BUG: kernel NULL pointer dereference, address: 0000000000000000"),
        (3, "INFO: task python3:77 blocked for more than 30 seconds."),
        (3, "UBSAN: array-index-out-of-bounds in main.c:10"),
        (3, "rcu: INFO: rcu_preempt self-detected stall on CPU"),
        (3, "BUG kmalloc-64 (Tainted: G O): Poison overwritten"),
    ],
)
def test_bad_words(level: int, text: str) -> None:
    assert is_bad(Message(level, 1.0, text))


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (6, "ugds_drv 0000:00:0a.0: bound"),
        (4, "ugds_drv: loading out-of-tree module taints kernel."),
        (4, "ugds_drv: module verification failed: signature and/or required key"),
        (4, "nvme nvme0: Ignoring bogus Namespace Identifiers"),
        (6, "DMAR: Intel(R) Virtualization Technology for Directed I/O"),
        (6, "DMAR: Host address width 39"),
    ],
)
def test_words_that_do_not_matter(level: int, text: str) -> None:
    assert not is_bad(Message(level, 1.0, text))


def test_allowed_words_are_no_complaint() -> None:
    first = Message(4, 1.0, "ugds_drv 0000:00:0a.0: refused")
    second = Message(4, 2.0, "ugds_drv 0000:00:0a.0: broken")
    assert bad_ones([first, second], (r"ugds_drv .*: refused",)) == [second]
