"""Sizes, times, and percentiles against a plain model."""

from __future__ import annotations

import argparse
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiougds.cli import _units
from aiougds.cli._latency import PERCENTILES, Distribution


@pytest.mark.parametrize(
    ("text", "value"),
    [("4096", 4096), ("4KiB", 4096), ("4k", 4096), ("1.5MiB", 3 << 19), ("2GB", 2e9)],
)
def test_sizes(text: str, value: float) -> None:
    assert _units.size(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("0.5", 0.5), ("5s", 5), ("250ms", 0.25)]
)
def test_times(text: str, value: float) -> None:
    assert _units.seconds(text) == value


@pytest.mark.parametrize("text", ["", "-1", "5 minutes", "1.2.3", "nan", "1e3"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time"):
        _units.seconds(text)


def test_numbers_for_people() -> None:
    assert _units.as_bytes(0) == "0 B"
    assert _units.as_bytes(4096) == "4 KiB"
    assert _units.as_bytes(3 << 19) == "1.5 MiB"
    assert _units.as_rate(3.52e9) == "3.52 GB/s"
    assert _units.as_rate(350e6) == "350.0 MB/s"
    assert [_units.as_time(ns) for ns in (850, 12_300, 4.5e6, 1.2e9)] == [
        "850 ns", "12.3 us", "4.5 ms", "1.20 s"
    ]  # fmt: skip


@given(st.lists(st.lists(st.integers(0, 2**32 - 1)), min_size=1))
def test_percentiles_are_those_of_the_sorted_values(parts: list[list[int]]) -> None:
    spread = Distribution(array("I", part) for part in parts)
    values = sorted(value for part in parts for value in part)
    assert spread.n == len(values)
    if not values:
        assert (spread.minimum, spread.percentile(50), spread.maximum) == (0, 0, 0)
        return
    assert (spread.minimum, spread.maximum) == (values[0], values[-1])
    assert spread.mean == pytest.approx(sum(values) / len(values))
    for p in (*PERCENTILES, 100.0):
        told = spread.percentile(p)
        below = sum(value < told for value in values)
        up_to = sum(value <= told for value in values)
        assert below * 100 < p * len(values) <= up_to * 100 + 1e-6 * len(values)
