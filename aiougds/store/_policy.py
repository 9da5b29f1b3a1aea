"""Which chunk goes first when room is needed."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Literal, Protocol

from aiougds._options import one_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

Eviction = Literal["lru", "arc"]
EVICTIONS: Final[tuple[Eviction, ...]] = ("lru", "arc")


class Policy(Protocol):
    """The order of the chunks of one pool of slots."""

    def admit(self, key: bytes) -> None:
        """A chunk that is not there is about to get a slot."""

    def insert(self, slot: int, key: bytes) -> None:
        """It is there."""

    def touch(self, slot: int, /) -> None:
        """It was used."""

    def remove(self, slot: int) -> None:
        """It was deleted."""

    def evict(self, keys: list[bytes], held: Container[int]) -> int | None:
        """Choose a slot whose chunk goes, none of those held; None: there is none."""

    def restore(self, slots: Iterable[int]) -> None:
        """Begin with these, the oldest first."""

    def order(self) -> list[int]:
        """Return all slots, the oldest first, as far as there is an order."""
        ...


class LRU:
    """Least recently used."""

    __slots__ = ("_order", "touch")

    def __init__(self) -> None:
        self._order: OrderedDict[int, None] = OrderedDict()
        self.touch = self._order.move_to_end

    def admit(self, key: bytes) -> None:
        """Nothing depends on it."""

    def insert(self, slot: int, key: bytes) -> None:
        """Put it last."""
        self._order[slot] = None

    def remove(self, slot: int) -> None:
        """Forget it."""
        self._order.pop(slot, None)

    def evict(self, keys: list[bytes], held: Container[int]) -> int | None:
        """Choose the first that is not held."""
        found = next((slot for slot in self._order if slot not in held), None)
        if found is not None:
            del self._order[found]
        return found

    def restore(self, slots: Iterable[int]) -> None:
        """Begin with these, the oldest first."""
        self._order.update(OrderedDict.fromkeys(slots))

    def order(self) -> list[int]:
        """Return all slots, the oldest first."""
        return list(self._order)


class ARC:
    """Adaptive replacement (Megiddo and Modha, FAST 2003), exactly.

    ``once`` and ``often`` are T1 and T2 of the paper; the ghosts, B1 and B2, are keys
    without chunks. Ghosts are trimmed when a chunk gets in, which leaves the same as
    trimming them before the replacement.
    """

    __slots__ = (
        "_again", "_ghost", "_ghosts_often", "_ghosts_once", "_often", "_once",
        "_target", "capacity",
    )  # fmt: skip

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._once: OrderedDict[int, None] = OrderedDict()
        self._often: OrderedDict[int, None] = OrderedDict()
        self._ghosts_once: OrderedDict[bytes, None] = OrderedDict()
        self._ghosts_often: OrderedDict[bytes, None] = OrderedDict()
        self._target = 0.0  # of the length of ``once``
        self._ghost = False  # what is coming was in the ghosts of ``often``
        self._again: set[bytes] = set()  # keys on their way that had been ghosts

    def admit(self, key: bytes) -> None:
        """Learn from a ghost that it comes back."""
        once, often = self._ghosts_once, self._ghosts_often
        self._ghost = False
        if key in once:
            more = max(1.0, len(often) / len(once))
            self._target = min(self.capacity, self._target + more)
            del once[key]
            self._again.add(key)
        elif key in often:
            less = max(1.0, len(once) / len(often))
            self._target = max(0.0, self._target - less)
            del often[key]
            self._again.add(key)
            self._ghost = True

    def insert(self, slot: int, key: bytes) -> None:
        """Put it last of its list."""
        if key in self._again:
            self._again.discard(key)
            self._often[slot] = None
            return
        self._once[slot] = None
        while len(self._once) + len(self._ghosts_once) > self.capacity:
            if not self._ghosts_once:
                break
            self._ghosts_once.popitem(last=False)
        total = len(self._once) + len(self._ghosts_once)
        total += len(self._often) + len(self._ghosts_often)
        while total > 2 * self.capacity and self._ghosts_often:
            self._ghosts_often.popitem(last=False)
            total -= 1

    def touch(self, slot: int) -> None:
        """It was used more than once."""
        if slot in self._once:
            del self._once[slot]
            self._often[slot] = None
        else:
            self._often.move_to_end(slot)

    def remove(self, slot: int) -> None:
        """Forget it, without a ghost."""
        self._once.pop(slot, None)
        self._often.pop(slot, None)

    def evict(self, keys: list[bytes], held: Container[int]) -> int | None:
        """Replace one, as the paper says; of the other list if all of one are held."""
        size = len(self._once)
        from_once = size > self._target or (self._ghost and size == self._target)
        lists = ((self._once, self._ghosts_once), (self._often, self._ghosts_often))
        for order, ghosts in lists if size and from_once else lists[::-1]:
            found = next((slot for slot in order if slot not in held), None)
            if found is not None:
                del order[found]
                ghosts[keys[found]] = None
                return found
        return None

    def restore(self, slots: Iterable[int]) -> None:
        """Begin with these, the oldest first; how often they were used is not known."""
        self._once.update(OrderedDict.fromkeys(slots))

    def order(self) -> list[int]:
        """Return those used once, then the others, the oldest of each first."""
        return [*self._once, *self._often]


class Never:
    """Nothing goes by itself."""

    __slots__ = ()

    def admit(self, key: bytes) -> None:
        """Nothing depends on it."""

    def insert(self, slot: int, key: bytes) -> None:
        """Nothing depends on it."""

    def touch(self, slot: int) -> None:
        """Nothing depends on it."""

    def remove(self, slot: int) -> None:
        """Nothing depends on it."""

    def evict(self, keys: list[bytes], held: Container[int]) -> int | None:
        """Choose none."""
        return None

    def restore(self, slots: Iterable[int]) -> None:
        """Nothing depends on it."""

    def order(self) -> list[int]:
        """Return none: what is noted stays as it is."""
        return []


def make_policy(name: Eviction | None, capacity: int) -> Policy:
    """Return a policy for a pool of so many slots."""
    if name is None:
        return Never()
    one_of("eviction", name, EVICTIONS)
    return LRU() if name == "lru" else ARC(capacity)
