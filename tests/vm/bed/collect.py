"""Guest runs as pytest sees them: a run is a node, each of its checks a test."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from vm.bed.launch import Options, end_guests, guests_at_once, launch
from vm.bed.run import GuestRun, Result

TAIL = 150  # lines of a log in a report
SHORT_TAIL = 5
WHOLE = "guest"  # the test that stands for the guest itself


class CheckFailed(Exception):
    """A check failed in its guest; the text is what the guest reported."""


class Fleet:
    """Guests of one session. They start early, so that they run beside each other."""

    __slots__ = ("_options", "_pool", "_results")

    def __init__(self, options: Options) -> None:
        self._options = options
        self._pool = ThreadPoolExecutor(guests_at_once(), "guest")
        self._results: dict[str, Future[Result]] = {}

    def start(self, key: str, run: GuestRun, selected: list[str]) -> None:
        future = self._pool.submit(launch, run, selected, self._options)
        self._results[key] = future

    def result(self, key: str) -> Result:
        return self._results[key].result()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        end_guests()


fleet_key = pytest.StashKey[Fleet]()


class GuestNode(pytest.Collector):
    """One guest run."""

    run: GuestRun

    @classmethod
    def make(cls, parent: pytest.Collector, run: GuestRun) -> GuestNode:
        # typed: pytest gives the keywords no types
        node: GuestNode = cls.from_parent(parent, name=run.name)  # pyright: ignore[reportUnknownMemberType]
        node.run = run
        return node

    def collect(self) -> Iterator[pytest.Item]:
        for name in (WHOLE, *self.run.all_checks()):
            # typed: as above
            item: CheckItem = CheckItem.from_parent(self, name=name)  # pyright: ignore[reportUnknownMemberType]
            # The guest keeps the time; here it is waited for, perhaps behind others.
            item.add_marker(pytest.mark.timeout(0))
            yield item


class CheckItem(pytest.Item):
    """One check of a guest run: passes if the guest said so."""

    @property
    def node(self) -> GuestNode:
        assert isinstance(self.parent, GuestNode)
        return self.parent

    def runtest(self) -> None:
        result = self.config.stash[fleet_key].result(self.node.nodeid)
        if self.name == WHOLE:
            wrong, lines = result.trouble, TAIL
            seconds = f"boot {result.boot_s} s, in all {result.seconds:.1f} s"
            self.add_report_section("call", "guest", seconds)
        else:
            outcome = result.outcome(self.name)
            wrong = "" if outcome.state == "passed" else outcome.detail
            # One lost guest is one long report, and many short ones.
            lines = TAIL if outcome.state == "failed" else SHORT_TAIL
        if wrong:
            for what, text in (("console", result.console), ("dmesg", result.dmesg)):
                self.add_report_section("call", f"guest {what}", tail(text, lines))
            raise CheckFailed(wrong)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str:
        if isinstance(excinfo.value, CheckFailed):
            return str(excinfo.value)
        return f"{excinfo.type.__name__}: {excinfo.value}"

    def reportinfo(self) -> tuple[str, None, str]:
        return str(self.path), None, f"{self.node.name}: {self.name}"


def tail(text: str, lines: int) -> str:
    return "\n".join(text.splitlines()[-lines:])


def selected_by_run(items: list[pytest.Item]) -> dict[GuestNode, list[str]]:
    """Return the nodes that have chosen tests, and which checks those are."""
    found: dict[GuestNode, list[str]] = {}
    for item in items:
        if isinstance(item, CheckItem):
            names = found.setdefault(item.node, [])
            if item.name != WHOLE:
                names.append(item.name)
    return found
