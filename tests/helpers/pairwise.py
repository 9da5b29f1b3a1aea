"""Few rows in which every pair of two columns' values occurs: a covering array."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product

Row = tuple[object, ...]
Pair = tuple[tuple[int, object], tuple[int, object]]


def pairs_of(row: Row) -> Iterator[Pair]:
    """Give the pairs of values of two different columns that a row holds."""
    yield from combinations(enumerate(row), 2)


def all_pairs(
    columns: Sequence[Sequence[object]], allowed: Callable[[Row], bool]
) -> dict[Pair, None]:
    """Return the pairs that some allowed row holds, in a fixed order."""
    return {
        pair: None
        for row in product(*columns)
        if allowed(row)
        for pair in pairs_of(row)
    }


def pairwise(
    columns: Sequence[Sequence[object]],
    allowed: Callable[[Row], bool] = lambda _row: True,
    start: Sequence[Row] = (),
) -> list[Row]:
    """Return rows that, with those of ``start``, hold every pair.

    Greedy, and the same in every run: each row starts from the first pair that is
    still missing, and takes of all allowed rows with it the one that holds the most
    of what is missing.
    """
    missing = all_pairs(columns, allowed)
    for row in start:
        for pair in pairs_of(row):
            missing.pop(pair, None)
    rows: list[Row] = []
    while missing:
        (i, a), (j, b) = next(iter(missing))
        best = max(
            (
                row
                for row in product(
                    *(
                        [a] if k == i else [b] if k == j else column
                        for k, column in enumerate(columns)
                    )
                )
                if allowed(row)
            ),
            key=lambda row: sum(pair in missing for pair in pairs_of(row)),
        )
        rows.append(best)
        for pair in pairs_of(best):
            missing.pop(pair, None)
    return rows
