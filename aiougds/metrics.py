"""Metrics for Prometheus: ``pip install 'aiougds[metrics]'``.

.. code-block:: python

    from prometheus_client import REGISTRY, start_http_server
    from aiougds.metrics import ControllerCollector, StoreCollector

    REGISTRY.register(ControllerCollector())
    start_http_server(9090)

``StoreCollector({"kv": store})`` does the same for chunk stores.

Names and units are as the Prometheus conventions want them: ``aiougds_`` before each,
base units, ``_total`` behind what only rises.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from aiougds import _public as _public  # what errors are called
from aiougds._device import open_devices
from aiougds._errors import CapabilityError
from aiougds._ffi import text
from aiougds._stats import STATES, statistics
from aiougds._tallies import BUCKETS, added, bucket_low_ns

try:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        InfoMetricFamily,
        StateSetMetricFamily,
    )
    from prometheus_client.registry import Collector
except ImportError as error:
    raise CapabilityError(
        f"aiougds.metrics needs prometheus-client: pip install 'aiougds[metrics]' "
        f"({error})"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Protocol

    from prometheus_client.core import Metric

    import aiougds
    from aiougds._device import Device
    from aiougds._stats import Statistics
    from aiougds._tallies import LatencyHistogram
    from aiougds.store import Capacity, StoreStatistics

    class AnyStore(Protocol):
        """A chunk store, awaitable or blocking."""

        @property
        def closed(self) -> bool: ...
        @property
        def broken(self) -> str | None: ...
        @property
        def capacity(self) -> Capacity: ...
        def statistics(self) -> StoreStatistics: ...


__all__ = ["ControllerCollector", "StoreCollector"]

LABELS: Final = ("controller",)
KINDS: Final = ("controller", "command", "io_class")
# Every octave from 1 us to 17 s: limits of buckets, so what is below each is exact.
LIMITS: Final = tuple(
    bucket_low_ns(i) / 1e9
    for i in range(32, BUCKETS, 16)
    if 1e3 <= bucket_low_ns(i) <= 2e10
)
COUNTERS: Final = {
    "doorbells": "Doorbell registers written",
    "inline_completions": "Operations that ended inside the submitting call",
    "wakeups": "Wake-ups of event loops and threads",
    "stragglers": "Completions that housekeeping found after their owner slept",
    "retries": "Commands sent again after a failure",
    "timeouts": "Operations that timed out",
    "cancels": "Operations given up after a cancel",
    "aborts": "Abort commands sent",
    "resets": "Controller resets",
    "dropped": "Completions that nobody waited for",
    "jit_pins": "Buffers pinned just in time",
    "bounces": "Requests copied because of unaligned memory or edges",
}
GAUGES: Final = {
    "inflight": ("inflight_commands", "Commands at the device"),
    "quarantined": ("quarantined_operations", "Given up, memory still at the device"),
    "mappings": ("mappings", "Memory mapped for the device"),
    "channels": ("channels", "Event loops and threads that use it"),
}
STORE: Final = ("store",)
STORE_COUNTERS: Final = {
    "puts": ("puts", "Chunks written"),
    "puts_present": ("puts_present", "Puts that found their key there"),
    "put_bytes": ("put_bytes", "Bytes of chunks written"),
    "gets": ("gets", "Chunks asked for"),
    "hits": ("hits", "Of these, found and read"),
    "misses": ("misses", "Of these, not there"),
    "get_bytes": ("get_bytes", "Bytes that gets read"),
    "deletes": ("deletes", "Chunks deleted"),
    "evictions": ("evictions", "Chunks that went to make room"),
    "corrupt": ("corrupt_chunks", "Chunks dropped because their bytes were wrong"),
    "waits": ("waits", "Waits of puts because nothing could make room"),
    "unregistered": ("unregistered", "Operations that registered memory for the call"),
    "tail_bytes": ("tail_bytes", "Bytes copied of ends that are no whole block"),
    "commits": ("commits", "Writes of the journal"),
    "journal_blocks": ("journal_blocks", "Blocks that these wrote"),
    "checkpoints": ("checkpoints", "Checkpoints written"),
}
STORE_GAUGES: Final = {
    "chunks": ("chunks", "Chunks that are there"),
    "pinned": ("pinned_chunks", "Of these, pinned"),
    "recovery_s": ("recovery_seconds", "What reading the index took"),
}
ROOM: Final = {
    "bytes": ("capacity_bytes", "Room, if every chunk filled its slot"),
    "used_bytes": ("used_bytes", "Bytes of the chunks that are there"),
    "slots": ("slots", "Chunks that there is room for"),
    "free_slots": ("free_slots", "Slots without a chunk"),
}


class ControllerCollector(Collector):
    """Reads the statistics of controllers when it is scraped.

    Of those given, or of all that are open in this process then. Reading stops no I/O,
    and may be done on any thread. Histograms are of the latency of commands, from
    their submission to their completion; with ``statistics=False`` there are none.

    The label ``controller`` is the address. Of several that have the same, such as two
    of ``emu:?size=1GiB``, all but one have a number behind it (``emu:?size=1GiB #2``),
    which stays with them until they are closed.
    """

    def __init__(self, *controllers: aiougds.Controller) -> None:
        self._devices = [controller._device for controller in controllers]
        self._labels: WeakKeyDictionary[Device, str] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        of = "all controllers" if not self._devices else f"{len(self._devices)} of them"
        return f"<ControllerCollector of {of}>"

    def collect(self) -> Iterable[Metric]:
        """Return the metric families of this moment."""
        devices = [d for d in self._devices or open_devices() if not d.ended]
        named = list(zip(self._name(devices), devices, strict=True))
        seen = [(name, statistics(device)) for name, device in named]
        yield from _infos(named)
        yield from _counters(seen)
        yield from _commands(seen)

    def _name(self, devices: Iterable[Device]) -> list[str]:
        """Return a label for each that is no other's: series are told apart by it."""
        with self._lock:
            taken = {self._labels[one] for one in devices if one in self._labels}
            for device in devices:
                if device not in self._labels:
                    address = device.address
                    numbered = (f"{address} #{n}" for n in itertools.count(2))
                    names = itertools.chain([address], numbered)
                    name = next(name for name in names if name not in taken)
                    taken.add(name)
                    self._labels[device] = name
            return [self._labels[device] for device in devices]

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering reads no statistics."""
        return ()


class StoreCollector(Collector):
    """Reads the statistics of chunk stores when it is scraped.

    ``stores`` are open stores by the name that their label ``store`` gets; one that
    was closed is left out. Reading waits for nothing, and may be done on any thread.
    """

    def __init__(self, stores: Mapping[str, AnyStore]) -> None:
        self._stores = dict(stores)

    def __repr__(self) -> str:
        return f"<StoreCollector of {', '.join(self._stores) or 'none'}>"

    def collect(self) -> Iterable[Metric]:
        """Return the metric families of this moment."""
        there = [(name, one) for name, one in self._stores.items() if not one.closed]
        counted = [(name, one.statistics()) for name, one in there]
        room = [(name, one.capacity) for name, one in there]
        for field, (name, words) in STORE_COUNTERS.items():
            counter = CounterMetricFamily(f"aiougds_store_{name}", words, labels=STORE)
            for label, stats in counted:
                counter.add_metric([label], getattr(stats, field))
            yield counter
        for fields, seen in ((STORE_GAUGES, counted), (ROOM, room)):
            for field, (name, words) in fields.items():
                gauge = GaugeMetricFamily(f"aiougds_store_{name}", words, labels=STORE)
                for label, one in seen:
                    gauge.add_metric([label], getattr(one, field))
                yield gauge
        broken = GaugeMetricFamily(
            "aiougds_store_broken", "1: nothing can be put any more", labels=STORE
        )
        for label, store in there:
            broken.add_metric([label], store.broken is not None)
        yield broken

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering reads no statistics."""
        return ()


def _infos(named: Iterable[tuple[str, Device]]) -> Iterator[Metric]:
    about = InfoMetricFamily("aiougds_controller", "Open controllers", labels=LABELS)
    state = StateSetMetricFamily(
        "aiougds_controller_state", "State of the controller", labels=LABELS
    )
    for name, device in named:
        info = device.info()
        about.add_metric(
            [name],
            {
                "firmware": text(info.firmware),
                "mode": device.options.mode,
                "model": text(info.model),
                "serial": text(info.serial),
                "transport": text(info.transport),
            },
        )
        now = STATES[info.state]
        states: dict[str, bool] = {one: one == now for one in STATES.values()}
        state.add_metric([name], states)
    yield about
    yield state


def _counters(seen: list[tuple[str, Statistics]]) -> Iterator[Metric]:
    for name, words in COUNTERS.items():
        counter = CounterMetricFamily(f"aiougds_{name}", words, labels=LABELS)
        for label, stats in seen:
            counter.add_metric([label], getattr(stats, name))
        yield counter
    for name, (unit, words) in GAUGES.items():
        gauge = GaugeMetricFamily(f"aiougds_{unit}", words, labels=LABELS)
        for label, stats in seen:
            gauge.add_metric([label], getattr(stats, name))
        yield gauge


def _kinds(
    seen: list[tuple[str, Statistics]],
) -> Iterator[tuple[list[str], LatencyHistogram]]:
    """Queue pairs and sizes are added up, or there would be too many series."""
    for label, stats in seen:
        kinds = {(row.command, row.io_class) for row in stats.latencies}
        for command, io_class in sorted(kinds, key=str):
            rows = (
                row
                for row in stats.latencies
                if (row.command, row.io_class) == (command, io_class)
            )
            yield [label, command or "any", io_class or "any"], added(rows)


def _commands(seen: list[tuple[str, Statistics]]) -> Iterator[Metric]:
    moved = CounterMetricFamily(
        "aiougds_command_bytes", "Bytes of commands that succeeded", labels=KINDS
    )
    failed = CounterMetricFamily(
        "aiougds_command_errors", "Commands that failed", labels=KINDS
    )
    took = HistogramMetricFamily(
        "aiougds_command_duration_seconds",
        "From the submission of a command to its completion",
        labels=KINDS,
    )
    for labels, row in _kinds(seen):
        moved.add_metric(labels, row.nbytes)
        failed.add_metric(labels, row.errors)
        took.add_metric(labels, _cumulative(row), row.total_s)
    yield moved
    yield failed
    yield took


def _cumulative(row: LatencyHistogram) -> list[tuple[str, float]]:
    below = [
        (f"{limit:g}", float(sum(n for top, n in row.buckets if top <= limit)))
        for limit in LIMITS
    ]
    # What was counted between two reads of a moving histogram is in its buckets.
    return [*below, ("+Inf", float(sum(n for _, n in row.buckets)))]
