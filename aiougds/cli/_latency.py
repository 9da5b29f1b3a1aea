"""Latencies: collected in nanoseconds, told as exact percentiles."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9)
LONGEST_NS: Final = 0xFFFFFFFF  # four bytes each: 4.29 s and more read as this


def samples() -> array[int]:
    """Return an empty store; append ``min(ns, LONGEST_NS)``."""
    return array("I")


class Distribution:
    """How latencies are spread. Percentiles are measured values, not interpolated."""

    __slots__ = ("_cumulative", "_values", "mean", "n")

    def __init__(self, parts: Iterable[Iterable[int]]) -> None:
        counts: Counter[int] = Counter()
        for part in parts:
            counts.update(part)
        self._values = sorted(counts)
        self._cumulative = list(accumulate(counts[value] for value in self._values))
        self.n = self._cumulative[-1] if self._cumulative else 0
        total = sum(value * times for value, times in counts.items())
        self.mean = total / self.n if self.n else 0.0

    @property
    def minimum(self) -> int:
        """The shortest, in nanoseconds; 0 when there is none."""
        return self._values[0] if self._values else 0

    @property
    def maximum(self) -> int:
        """The longest, in nanoseconds; 0 when there is none."""
        return self._values[-1] if self._values else 0

    def percentile(self, p: float) -> int:
        """Return the smallest latency that ``p`` per cent do not exceed."""
        if not self.n:
            return 0
        rank = min(self.n, max(1, -int(-self.n * p // 100)))
        return self._values[bisect_left(self._cumulative, rank)]

    def as_us(self) -> dict[str, float]:
        """Return microseconds under stable names: min, mean, p50 ... p99_9, max."""
        told = {"min": self.minimum / 1e3, "mean": self.mean / 1e3}
        for p in PERCENTILES:
            told[f"p{p:g}".replace(".", "_")] = self.percentile(p) / 1e3
        told["max"] = self.maximum / 1e3
        return {name: round(value, 3) for name, value in told.items()}
