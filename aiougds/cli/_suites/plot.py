"""Figures shaped like the paper's, and numbered as there, drawn from a record.

Drawn with matplotlib, which is imported when somebody asks for a figure.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aiougds.cli._failures import CommandError
from aiougds.cli._units import as_bytes

Cells = Sequence[Mapping[str, Any]]
NOTHING: Final = {"median": 0.0, "p5": 0.0, "p95": 0.0}
STAGES: Final = ("open", "register", "first_read")
SCHEDULES: Final = ("sequential", "overlapped", "pipelined")
DPI: Final = 110


def need_matplotlib() -> None:
    """Raise CommandError unless figures can be drawn."""
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError as exc:
        raise CommandError(
            f"--plot needs matplotlib ({exc}): pip install 'aiougds[plot]'"
        ) from exc


def draw(folder: Path, told: Mapping[str, Any]) -> list[Path]:
    """Draw what a record holds; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for suite in told["suites"]:
        for name, figure in FIGURES[suite["name"]](suite["cells"]):
            _finish(figure, suite, told["machine"])
            files.append(folder / f"{name}.png")
            figure.savefig(files[-1], dpi=DPI)
    return files


def _finish(figure: Any, suite: Mapping[str, Any], machine: Mapping[str, Any]) -> None:  # noqa: ANN401
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    rows = _legend(figure, handles) if handles else 0
    device = suite["device"] or {"label": "", "address": ""}
    figure.text(
        0.5, 0.01,
        f"{device['label']}\n{machine['processor']}, {machine['cpus']} CPUs, "
        f"{machine['loop']}, load {machine['load'][0]:.2f} at the beginning; medians, "
        "and 5th to 95th percentile of the rounds",
        ha="center", va="bottom", fontsize=7,
    )  # fmt: skip
    figure.tight_layout(rect=(0, 0.09, 1, 0.98 - 0.045 * rows))


def _legend(figure: Any, handles: Mapping[str, Any]) -> int:  # noqa: ANN401
    """Say who is who, in as few rows as the figure is wide enough for; return them."""
    columns = min(5, len(handles))
    while True:
        legend = figure.legend(
            handles.values(), handles, loc="upper center", ncol=columns, fontsize=8
        )
        box = legend.get_window_extent()
        if columns == 1 or box.width <= figure.bbox.width:
            return -(-len(handles) // columns)
        legend.remove()
        columns -= 1


def _figure(count: int, *, height: float = 3.6) -> tuple[Any, Any]:
    made = importlib.import_module("matplotlib.figure")
    figure = made.Figure(figsize=(max(6.4, 3.3 * count), height))
    return figure, figure.subplots(1, count, squeeze=False)[0]


def _sides(cells: Cells) -> list[str]:
    return list(dict.fromkeys(cell["side"] for cell in cells))


def _found(
    cells: Cells, side: str, metric: str, **shape: object
) -> Mapping[str, float]:
    """Return a metric of the cell of that shape; nothing where there is none."""
    for cell in cells:
        if cell["side"] == side and all(cell[k] == v for k, v in shape.items()):
            value: Mapping[str, float] = cell["metrics"].get(metric, NOTHING)
            return value
    return NOTHING


def _errors(values: Sequence[Mapping[str, float]]) -> list[list[float]]:
    return [
        [value["median"] - value["p5"] for value in values],
        [value["p95"] - value["median"] for value in values],
    ]


def _bars(
    axes: Any,  # noqa: ANN401
    ticks: Sequence[str],
    series: Mapping[str, Sequence[Mapping[str, float]]],
) -> None:
    width = 0.8 / len(series)
    for k, (name, values) in enumerate(series.items()):
        axes.bar(
            [x + (k - (len(series) - 1) / 2) * width for x in range(len(ticks))],
            [value["median"] for value in values],
            width,
            yerr=_errors(values),
            error_kw={"elinewidth": 0.7},
            label=name,
        )
    axes.set_xticks(range(len(ticks)), ticks)
    axes.grid(axis="y", alpha=0.3)


def _lines(
    axes: Any,  # noqa: ANN401
    places: Sequence[int],
    ticks: Sequence[str],
    series: Mapping[str, Sequence[Mapping[str, float]]],
) -> None:
    for name, values in series.items():
        medians = [value["median"] for value in values]
        axes.errorbar(
            places, medians, yerr=_errors(values), marker="o", markersize=3,
            linewidth=1, elinewidth=0.7, label=name,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, ticks)
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def _by_direction(cells: Cells) -> Iterator[tuple[str, Cells]]:
    for rw in dict.fromkeys(cell["rw"] for cell in cells):
        yield rw, [cell for cell in cells if cell["rw"] == rw]


def _of(cells: Cells, what: str) -> list[int]:
    return sorted({cell[what] for cell in cells})


def _grid(
    cells: Cells, metric: str, panel: str, along: str, label: str
) -> tuple[Any, Any]:
    """Bars of a metric: a panel for each of one thing, groups along another."""
    panels, places = _of(cells, panel), _of(cells, along)
    figure, all_axes = _figure(len(panels))
    for axes, value in zip(all_axes, panels, strict=True):
        series = {
            side: [
                _found(cells, side, metric, **{panel: value, along: place})
                for place in places
            ]
            for side in _sides(cells)
        }
        _bars(axes, [_tick(along, place) for place in places], series)
        axes.set_title(_title(panel, value), fontsize=9)
    all_axes[0].set_ylabel(label)
    return figure, all_axes


def _tick(what: str, value: int) -> str:
    return as_bytes(value) if what == "size" else str(value)


def _title(what: str, value: int) -> str:
    if what == "size":
        return as_bytes(value)
    return f"{value} task{'s' if value > 1 else ''}"


Made = Iterator[tuple[str, Any]]


def _setup(cells: Cells) -> Made:
    if not cells:
        return
    figure, (axes,) = _figure(1, height=1.6 + 0.45 * len(cells))
    names, left = _sides(cells), [0.0] * len(cells)
    for stage in STAGES:
        values = [_found(cells, side, stage)["median"] for side in names]
        axes.barh(names, values, left=left, label=stage.replace("_", " "))
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    yield "figure-03-setup", figure


def _sync(cells: Cells) -> Made:
    for rw, some in _by_direction(cells):
        number = {"read": "04", "write": "05"}[rw]
        figure, _ = _grid(some, "bandwidth", "tasks", "size", "MiB/s")
        yield f"figure-{number}-sync-{rw}", figure
        sizes, tasks = _of(some, "size"), _of(some, "tasks")
        figure, all_axes = _figure(len(sizes))
        for axes, size in zip(all_axes, sizes, strict=True):
            series = {
                side: [_found(some, side, "latency", size=size, tasks=n) for n in tasks]
                for side in _sides(some)
            }
            _lines(axes, tasks, [str(n) for n in tasks], series)
            axes.set_yscale("log")
            axes.set_title(as_bytes(size), fontsize=9)
            axes.set_xlabel("tasks")
        all_axes[0].set_ylabel("mean latency, us")
        yield f"figure-06-sync-latency-{rw}", figure


def _batch(cells: Cells) -> Made:
    for rw, some in _by_direction(cells):
        number = {"read": "08", "write": "09"}[rw]
        figure, _ = _grid(some, "bandwidth", "size", "batch", "MiB/s")
        yield f"figure-{number}-batch-{rw}", figure
        largest = [cell for cell in some if cell["size"] == _of(some, "size")[-1]]
        batches = _of(largest, "batch")
        figure, both = _figure(2)
        for axes, metric in zip(both, ("first", "later"), strict=True):
            series = {
                side: [_found(largest, side, metric, batch=n) for n in batches]
                for side in _sides(largest)
            }
            _bars(axes, [str(n) for n in batches], series)
            axes.set_yscale("log")
            axes.set_title(f"{metric} batch, {as_bytes(largest[0]['size'])} items")
            axes.set_ylabel("us")
        yield f"figure-10-first-batch-{rw}", figure
        figure, _ = _grid(some, "steady_bandwidth", "size", "batch", "MiB/s")
        yield f"figure-11-steady-{rw}", figure


def _stream(cells: Cells) -> Made:
    for rw, some in _by_direction(cells):
        single = [cell for cell in some if not cell["batch"]]
        sizes = _of(single, "size")
        figure, both = _figure(2)
        for axes, (metric, unit) in zip(
            both, (("bandwidth", "MiB/s"), ("latency", "us")), strict=True
        ):
            series = {
                side: [_found(single, side, metric, size=size) for size in sizes]
                for side in _sides(single)
            }
            _bars(axes, [as_bytes(size) for size in sizes], series)
            axes.set_ylabel(f"{metric}, {unit}")
        yield f"figure-12-stream-{rw}", figure
        pieces = [cell for cell in some if cell["batch"]]
        figure, (axes,) = _figure(1)
        series = {
            cell["side"]: [cell["metrics"][name] for name in SCHEDULES]
            for cell in pieces
        }
        _bars(axes, SCHEDULES, series)
        axes.set_ylabel("ms")
        yield f"figure-13-schedules-{rw}", figure


def _poll(cells: Cells) -> Made:
    for rw, some in _by_direction(cells):
        sizes = _of(some, "size")
        figure, both = _figure(2)
        for axes, (metric, label) in zip(
            both,
            (("latency", "mean latency, us"), ("cpu_share", "processors busy, %")),
            strict=True,
        ):
            series = {
                side: [_found(some, side, metric, size=size) for size in sizes]
                for side in _sides(some)
            }
            _lines(axes, sizes, [as_bytes(size) for size in sizes], series)
            axes.set_ylabel(label)
        both[0].set_yscale("log")
        yield f"figure-14-poll-{rw}", figure


FIGURES: Final[dict[str, Callable[[Cells], Made]]] = {
    "setup": _setup,
    "sync": _sync,
    "batch": _batch,
    "stream": _stream,
    "poll": _poll,
}
