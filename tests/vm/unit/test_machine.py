"""QEMU's command line says what the machine was said to be."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from vm.bed.machine import Blocks, Controller, Machine, MediaError, Peer
from vm.bed.qemu import Boot, Properties, command

SHARE = Path("share")


def line_of(machine: Machine, accel: str = "tcg") -> list[str]:
    boot = Boot(Path("vmlinuz"), Path("initramfs"), SHARE, ("vm.start=here",), accel)
    return command(machine, boot)


def given(line: list[str], option: str) -> list[Properties]:
    """Return the JSON values of an option."""
    values = [value for name, value in pairwise(line) if name == option]
    return [json.loads(value) for value in values if value.startswith("{")]


def device(machine: Machine, name: str) -> Properties:
    found = [d for d in given(line_of(machine), "-device") if d.get("id") == name]
    assert len(found) == 1
    return found[0]


def test_plain_controller_has_its_namespace_itself() -> None:
    machine = Machine((Controller("nv0", (Blocks(lba=4096),), mdts=5, queues=8),))
    found = device(machine, "nv0")
    assert found["drive"] == "nv0-1"
    assert found["logical_block_size"] == found["physical_block_size"] == 4096
    assert (found["mdts"], found["max_ioqpairs"], found["msix_qsize"]) == (5, 8, 9)


def test_vectors_may_be_fewer_than_queues() -> None:
    machine = Machine((Controller("nv0", queues=8, vectors=2),))
    assert device(machine, "nv0")["msix_qsize"] == 2


def test_metadata_and_several_namespaces_have_devices_of_their_own() -> None:
    machine = Machine((Controller("nv0", (Blocks(metadata=8), Blocks())),))
    assert "drive" not in device(machine, "nv0")
    first, second = device(machine, "ns-nv0-1"), device(machine, "ns-nv0-2")
    assert (first["nsid"], first["ms"], first["bus"]) == (1, 8, "nv0")
    assert (second["nsid"], second["ms"], second["drive"]) == (2, 0, "nv0-2")


def test_subsystem_comes_before_its_controllers() -> None:
    pair = (Controller("a", subsystem="s"), Controller("b", (), subsystem="s"))
    found = given(line_of(Machine(pair)), "-device")
    assert [d["driver"] for d in found] == ["nvme-subsys", "nvme", "nvme-ns", "nvme"]


def test_port_holds_what_can_be_unplugged() -> None:
    machine = Machine((Controller("nv0"), Controller("hot", port=True)))
    assert device(machine, "hot")["bus"] == "port-hot"
    assert device(machine, "port-hot")["addr"] == "b"
    assert device(machine, "nv0")["addr"] == "a"


def test_iommu_comes_before_what_it_translates_for() -> None:
    machine = Machine(peers=(Peer(),), iommu=True)
    line = line_of(machine)
    devices = [value for name, value in pairwise(line) if name == "-device"]
    first = next(n for n, text in enumerate(devices) if text.startswith("intel-iommu"))
    own = [n for n, text in enumerate(devices) if text.startswith("{")]
    assert first < min(own)
    assert "intel_iommu=on" in line[line.index("-append") + 1].split()


def test_peer_is_a_file_of_its_size() -> None:
    machine = Machine(peers=(Peer("p", mib=8 << 10),))
    (memory,) = given(line_of(machine), "-object")
    assert memory["size"] == 8 << 30
    assert memory["mem-path"] == "share/peers/p"
    assert device(machine, "p")["memdev"] == memory["id"]


def nodes(blocks: Blocks) -> list[Properties]:
    return given(line_of(Machine((Controller("nv0", (blocks,)),))), "-blockdev")


@pytest.mark.parametrize(
    ("blocks", "drivers"),
    [
        (Blocks(), ["file", "raw"]),
        (Blocks(stored=False), ["null-co"]),
        (Blocks(suspend=True), ["file", "blkdebug", "raw"]),
        (Blocks(throttle=True), ["file", "throttle", "raw"]),
        (Blocks(throttle=True, suspend=True), ["file", "throttle", "blkdebug", "raw"]),
    ],
)
def test_layers_of_a_disk(blocks: Blocks, drivers: list[str]) -> None:
    found = nodes(blocks)
    assert [layer["driver"] for layer in found] == drivers
    assert found[-1]["node-name"] == "nv0-1"
    for below, above in pairwise(found):
        assert below["node-name"] in (above.get("file"), above.get("image"))


def test_media_errors_are_told_to_the_layer_that_makes_them() -> None:
    found = nodes(Blocks(errors=(MediaError(400), MediaError(8, "write", 28))))
    errors = found[1]["inject-error"]
    assert errors == [
        {"event": "none", "iotype": "read", "sector": 400, "errno": 5},
        {"event": "none", "iotype": "write", "sector": 8, "errno": 28},
    ]


@pytest.mark.parametrize("accel", ["tcg", "kvm"])
def test_there_are_two_processors_always(accel: str) -> None:
    line = line_of(Machine(), accel)
    assert line[line.index("-smp") + 1] == "2"
    threads = "tcg,thread=multi" if accel == "tcg" else "kvm"
    assert line[line.index("-accel") + 1] == threads


def test_two_devices_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="one name"):
        Machine((Controller("x"),), peers=(Peer("x"),))


def test_more_devices_than_slots_are_refused() -> None:
    with pytest.raises(ValueError, match="limit is 21"):
        Machine(tuple(Controller(f"n{n}") for n in range(22)))
