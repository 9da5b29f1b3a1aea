"""What Prometheus scrapes, and the spans of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from life.conftest import Live
from life.live import BLOCK, cancelled_when, until
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import aiougds
from aiougds import MediaError, Namespace, store, telemetry
from aiougds.metrics import ControllerCollector, StoreCollector
from aiougds.testing import Fault, inject

pytestmark = [pytest.mark.anyio, pytest.mark.few]


def scrape(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """Return samples by name and the values of their labels."""
    text = generate_latest(registry).decode()
    return {
        (sample.name, *(v for k, v in sample.labels.items() if k != "controller")): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_metrics(live: Live) -> None:
    registry = CollectorRegistry()
    async with live("latency=50us") as ns, ns.allocate(4 * BLOCK) as reg:
        registry.register(ControllerCollector(ns.controller))
        for _ in range(5):
            await ns.read(reg[:BLOCK], offset=0)
        await ns.write(reg, offset=0)
        fault = Fault.status("read", sct=2, sc=0x81)
        with inject(ns, fault), pytest.raises(MediaError):
            await ns.read(reg[:BLOCK], offset=0)
        seen = scrape(registry)
        stats = ns.controller.statistics()
        took = "aiougds_command_duration_seconds"
        reads = stats.latency("read")
        assert seen[f"{took}_count", "read", "normal"] == 6
        assert seen[f"{took}_sum", "read", "normal"] == pytest.approx(reads.total_s)
        assert seen[f"{took}_bucket", "read", "normal", "+Inf"] == 6
        below = [
            value
            for (name, *labels), value in seen.items()
            if name == f"{took}_bucket" and labels[:2] == ["read", "normal"]
        ]
        assert below == sorted(below)
        assert seen["aiougds_command_bytes_total", "read", "normal"] == 5 * BLOCK
        assert seen["aiougds_command_bytes_total", "write", "normal"] == 4 * BLOCK
        assert seen["aiougds_command_errors_total", "read", "normal"] == 1
        assert seen["aiougds_mappings",] == stats.mappings
        assert seen["aiougds_controller_state", "live"] == 1
        assert seen["aiougds_controller_state", "wedged"] == 0
    assert not [key for key in scrape(registry) if key[0].startswith(took)]


async def test_metrics_of_stores(live: Live) -> None:
    registry = CollectorRegistry()
    layout = store.Layout(slot_bytes=4 * BLOCK)
    async with live() as ns:
        async with store.open([ns], create=layout) as chunks:
            registry.register(StoreCollector({"kv": chunks}))
            await chunks.put(b"a", bytes(5000))
            await chunks.get(b"a", bytearray(5000))
            with pytest.raises(store.ChunkNotFoundError):
                await chunks.get(b"b", bytearray(5000))
            chunks.pin(b"a")
            seen = scrape(registry)
            room = chunks.capacity
            assert {
                name.removeprefix("aiougds_store_"): value
                for (name, label), value in seen.items()
                if value and label == "kv" and not name.endswith("recovery_seconds")
            } == {
                "puts_total": 1,
                "put_bytes_total": 5000,
                "gets_total": 2,
                "hits_total": 1,
                "misses_total": 1,
                "get_bytes_total": 5000,
                "unregistered_total": 2,
                "tail_bytes_total": 2 * (5000 % BLOCK),
                "commits_total": 1,
                "journal_blocks_total": 1,
                "chunks": 1,
                "pinned_chunks": 1,
                "capacity_bytes": room.bytes,
                "used_bytes": 5000,
                "slots": room.slots,
                "free_slots": room.slots - 1,
            }
            assert seen["aiougds_store_broken", "kv"] == 0
            assert seen["aiougds_store_corrupt_chunks_total", "kv"] == 0
        assert not scrape(registry)


async def test_of_all_that_are_open(live: Live) -> None:
    registry = CollectorRegistry()
    registry.register(ControllerCollector())
    async with live(), live():
        text = generate_latest(registry).decode()
        assert 'aiougds_controller_info{controller="emu:?' in text


async def test_two_of_one_address_are_told_apart(live: Live) -> None:
    registry = CollectorRegistry()
    registry.register(ControllerCollector())

    def pinned() -> dict[str, float]:
        families = text_string_to_metric_families(generate_latest(registry).decode())
        samples = [sample for family in families for sample in family.samples]
        keys = [(sample.name, *sorted(sample.labels.items())) for sample in samples]
        assert len(set(keys)) == len(keys)
        return {
            sample.labels["controller"]: sample.value
            for sample in samples
            if sample.name == "aiougds_jit_pins_total"
        }

    async with live() as first:
        address = first.controller.address
        await first.read(bytearray(BLOCK), offset=0)
        assert pinned() == {address: 1}
        second = live()
        async with second as other:
            assert pinned() == {address: 1, f"{address} #2": 0}
            await other.read(bytearray(BLOCK), offset=0)
            await other.read(bytearray(BLOCK), offset=0)
            await first.controller.aclose()
            assert pinned() == {f"{address} #2": 2}


async def test_without_statistics(live: Live) -> None:
    registry = CollectorRegistry()
    registry.register(ControllerCollector())
    async with live(statistics=False) as ns, ns.allocate(BLOCK) as reg:
        await ns.read(reg, offset=0)
        names = {key[0] for key in scrape(registry)}
        assert "aiougds_wakeups_total" in names
        assert "aiougds_command_duration_seconds_count" not in names


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    before = Namespace.read
    telemetry.instrument(provider)
    telemetry.instrument(provider)  # once more changes nothing
    yield exporter
    telemetry.uninstrument()
    assert Namespace.read is before


async def test_spans(live: Live, spans: InMemorySpanExporter) -> None:
    async with live() as ns, ns.allocate(4 * BLOCK) as reg:
        assert await ns.read(reg[:BLOCK], offset=BLOCK) == BLOCK
        await ns.write_many([(reg[:BLOCK], 0), (reg[BLOCK : 2 * BLOCK], BLOCK)])
        await ns.flush()
        fault = Fault.status("read", sct=2, sc=0x81)
        with inject(ns, fault), pytest.raises(MediaError):
            await ns.read(reg[:BLOCK], offset=0)
        address = ns.controller.address
    read, many, flush, failed = spans.get_finished_spans()
    assert (read.name, read.kind) == ("nvme.read", SpanKind.CLIENT)
    assert read.attributes == {
        "system.device": address,
        "nvme.namespace.id": 1,
        "disk.io.direction": "read",
        "nvme.offset": BLOCK,
        "nvme.bytes": BLOCK,
    }
    assert read.end_time is not None
    assert read.start_time is not None
    assert read.end_time > read.start_time
    assert many.attributes is not None
    assert (many.name, many.attributes["nvme.items"]) == ("nvme.write_many", 2)
    assert flush.name == "nvme.flush"
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "MediaError"
    assert failed.attributes["nvme.status"] == "0x281"
    assert not failed.status.is_ok
    assert read.instrumentation_scope is not None
    assert read.instrumentation_scope.version == aiougds.__version__


async def test_a_span_of_what_was_cancelled(
    live: Live, spans: InMemorySpanExporter
) -> None:
    async with live(cancel_grace_s=0.01) as ns, ns.allocate(BLOCK) as reg:
        with inject(ns, Fault.hold("read")) as held:
            assert await cancelled_when(
                lambda: bool(held.hits), lambda: ns.read(reg, offset=0)
            )
        await until(lambda: not ns.controller.quarantine)
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"].lower().startswith("cancelled")
