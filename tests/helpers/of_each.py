"""A part of the tests that leaves none out: some parameters of each."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable


def chosen_of_each(nodeids: Iterable[str], count: int) -> set[str]:
    """Return at most ``count`` of each test's parameters.

    Which ones is decided by their names alone: the same in each run and in each worker,
    and spread over loops and modes, for other tests have other ones.
    """
    if count < 1:
        raise ValueError(f"--of-each={count}: at least 1, so that no test is left out")
    of_test: dict[str, list[str]] = defaultdict(list)
    for nodeid in nodeids:
        of_test[nodeid.partition("[")[0]].append(nodeid)
    return {
        nodeid
        for several in of_test.values()
        for nodeid in sorted(several, key=lambda one: (zlib.crc32(one.encode()), one))[
            :count
        ]
    }
