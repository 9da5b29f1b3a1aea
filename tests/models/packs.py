"""Rules about batches: prepared, submitted, harvested, cancelled, closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from models.calls import BROKEN, CallRules, patience
from models.calls import item as items_of
from models.homes import Work
from models.objects import small
from models.reference import Pack, Part

from aiougds import (
    BusyError,
    ClosedError,
    OperationAbortedError,
    OperationTimeoutError,
    WrongLoopError,
)


class PackRules(CallRules):
    """Batches come, are used and go."""

    @precondition(lambda self: self.drives)
    @rule(drive=small, space=small, capacity=st.integers(1, 5))
    def make_batch(self, drive: int, space: int, capacity: int) -> None:
        there = self.space(drive, space)
        if self.refusal([Part(there, "flush", there.first, 0)]) == {ClosedError}:
            return
        if len(self.packs) > 1:
            closed = [pack for pack in self.packs if self.is_over(pack)]
            if not closed:
                return
            self.packs.remove(closed[0])
        real = there.real.batch(capacity)
        self.packs.append(Pack(there, real, capacity))

    @staticmethod
    def is_over(pack: Pack) -> bool:
        return pack.closed or pack.space.drive.state == "closed"

    def pack(self, number: int) -> Pack:
        pack: Pack = self.pick(number, self.packs)
        return pack

    @staticmethod
    def calling(call: Callable[..., object], *args: object, **keywords: object) -> Work:
        async def work() -> object:
            return call(*args, **keywords)

        return work()

    @precondition(lambda self: self.packs and self.memories)
    @rule(
        pack=small,
        kind=st.sampled_from(["read", "write", "flush"]),
        wheres=st.lists(items_of, min_size=1, max_size=3),
    )
    def prepare(
        self, pack: int, kind: str, wheres: list[tuple[int, int, int, int]]
    ) -> None:
        chosen = self.pack(pack)
        for part in self.items(chosen.space, kind, wheres):
            if kind == "flush":
                part.memory, part.count = None, 0
            self.prepare_one(chosen, part)

    def prepare_one(self, pack: Pack, part: Part) -> None:
        part.cookie = pack.cookies
        pack.cookies += 1
        if part.memory is None:
            work = self.calling(pack.real.flush, cookie=part.cookie)
        else:
            target = part.memory.target(part.at, part.count)
            call = getattr(pack.real, part.kind)
            work = self.calling(call, target, offset=part.offset, cookie=part.cookie)
        errors: set[type[BaseException]] = set()
        if self.is_over(pack) or pack.space.closed:
            errors = {ClosedError}
        elif part.memory is not None:
            memory = part.memory
            errors = {
                error
                for error in self.refusal([part])
                if memory.closed or part.drive not in memory.drives
            }
        if not errors and len(pack.prepared) + len(pack.unharvested) >= pack.capacity:
            errors = {BusyError}
        if errors:
            self.refused(work, errors)
            return
        self.get(work)
        pack.prepared.append(part)

    @precondition(lambda self: self.packs)
    @rule(pack=small, home=small, timed=st.booleans(), keep=st.booleans())
    def submit_batch(self, pack: int, home: int, timed: bool, keep: bool) -> None:
        chosen = self.pack(pack)
        if keep and chosen.prepared:
            self.keep(chosen.prepared[0])
        drive, parts = chosen.space.drive, list(chosen.prepared)
        stays = [part for part in parts if part.will_stay()]
        # What an executor has not sent at the deadline would not be with the device.
        timed = timed and bool(stays) and not drive.shared
        timeout_s = patience(parts) if timed else None
        work = self.calling(chosen.real.submit, timeout_s=timeout_s)
        if not self.usable(chosen, work, home):
            return
        if chosen.space.closed:
            self.refused(work, {ClosedError}, home)
            return
        if parts and drive.state == "live" and len(parts) > chosen.room:
            errors = {BusyError}
        else:
            errors = self.refusal(parts) if parts else set()
        chosen.prepared.clear()
        if errors:
            self.refused(work, errors, home)
            return
        assert self.get(work, home) == len(parts)
        chosen.unharvested += parts
        if not timed:
            self.launch(parts, home)
            return
        ended = self.get(chosen.real.harvest(len(chosen.unharvested)), home)
        self.launch(parts, home)
        for part in chosen.flying:
            if part.out:
                part.give_up(OperationTimeoutError)
        self.harvested(chosen, ended)
        assert not chosen.unharvested

    def usable(self, pack: Pack, work: Work, home: int) -> bool:
        """Whether a batch can be used there; if not, it said so."""
        home %= self.homes.count
        if self.is_over(pack):
            self.refused(work, {ClosedError}, home)
            return False
        if pack.space.drive.state != "live" and pack.home is None:
            work.close()  # it depends on whether this loop was there before
            return False
        if pack.home is None:
            pack.home = home
        if pack.home != home:
            broken = BROKEN if pack.space.drive.state != "live" else set()
            self.refused(work, {WrongLoopError} | broken, home)
            return False
        return True

    @precondition(lambda self: self.packs)
    @rule(
        pack=small,
        home=small,
        least=st.integers(0, 5),
        most=st.none() | st.integers(0, 5),
    )
    def harvest(self, pack: int, home: int, least: int, most: int | None) -> None:
        """Take what has ended; wait a moment for what has not."""
        chosen = self.pack(pack)
        ready = [part for part in chosen.unharvested if part.reported]
        if most is not None:
            least = min(least, most)
        timeout_s = None if least <= len(ready) else 0.002
        work = chosen.real.harvest(least, most, timeout_s)
        if not self.usable(chosen, work, home):
            return
        # Those that have ended since the last look of the engine at its queue are
        # its to find; the model knows them to have ended.
        items = self.get(work, home)
        assert len(items) <= len(ready)
        assert len(items) >= min(least, len(ready))
        self.harvested(chosen, items)

    def harvested(self, pack: Pack, items: list[Any]) -> None:
        by_cookie = {part.cookie: part for part in pack.unharvested}
        for item in items:
            part = by_cookie.pop(item.cookie)  # each of them once
            pack.unharvested.remove(part)
            self.agree(part, item.result)
            if part.stray:
                pack.given_up.append(part)
        expected = len(pack.unharvested)
        assert pack.real.pending == expected
        assert pack.real.prepared == len(pack.prepared)

    @precondition(lambda self: self.packs)
    @rule(pack=small)
    def cancel_batch(self, pack: int) -> None:
        chosen = self.pack(pack)
        home = chosen.home or 0
        flying = chosen.flying
        if flying and chosen.space.drive.patient:
            return
        self.get(self.calling(chosen.real.cancel), home)
        chosen.prepared.clear()
        for part in flying:
            part.give_up(OperationAbortedError)
        if flying:
            count = len(chosen.unharvested)
            self.harvested(chosen, self.get(chosen.real.harvest(count), home))
            assert not chosen.unharvested
        self.abort(flying)

    @precondition(lambda self: self.packs)
    @rule(pack=small)
    def close_batch(self, pack: int) -> None:
        chosen = self.pack(pack)
        flying = chosen.flying
        if flying and chosen.space.drive.patient:
            return
        self.get(chosen.real.aclose(), chosen.home or 0)
        chosen.closed = True
        chosen.prepared.clear()
        for part in flying:
            part.give_up(OperationAbortedError)
        chosen.unharvested.clear()
        self.abort(flying)
