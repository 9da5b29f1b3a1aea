"""LMCache's GDS tier over streams: bytes, order, and that no failure becomes data."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpu.objects import Tensor
from gpu.rig import GPU
from helpers.model import pattern

import aiougds
from aiougds._errors import OptionError
from aiougds.lmcache._slab import Slab, SlabError
from aiougds.lmcache._slab_place import FILE, SlabPlace
from aiougds.store import OccupiedError
from aiougds.testing import Fault, inject

pytestmark = pytest.mark.soft_gpu
MIB = 1 << 20
SIZE = 8 * MIB
BAD_READ = Fault.status("read", sct=2, sc=0x81)
BAD_WRITE = Fault.status("write", sct=2, sc=0x80)


class Region(Tensor):
    """A piece of a staging buffer, as LMCache hands it over."""

    def __init__(self, gpu: GPU, nbytes: int) -> None:
        super().__init__(gpu.alloc(nbytes), nbytes)
        self._gpu = gpu

    def get(self, start: int = 0, nbytes: int | None = None) -> bytes:
        data = self._gpu.get(self.ptr, self.size)
        return data[start : start + (nbytes or self.size)]

    def put(self, data: bytes) -> None:
        self._gpu.put(self.ptr, data)


Opened = Callable[..., Slab]


@pytest.fixture
def opened(tmp_path: Path, gpu: GPU) -> Iterator[Opened]:
    """Open slabs, and close them before the GPU is looked at."""
    slabs: list[Slab] = []

    def make(options: str = "", *, streams: bool = False) -> Slab:
        place = SlabPlace.parse(f"{tmp_path}#{options}", SIZE)
        made = Slab(place, SIZE, new_stream=gpu.stream if streams else None)
        slabs.append(made)
        return made

    yield make
    for slab in slabs:
        slab.close()


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.001)


@pytest.mark.parametrize("options", ["", "reads=held", "reads=held&overlap=3"])
def test_what_was_written_is_read(opened: Opened, gpu: GPU, options: str) -> None:
    slab = opened(options, streams=True)
    stream, region = gpu.stream(), Region(gpu, MIB)
    slab.register(region)
    chunk = MIB // 4
    data = pattern(MIB, 1)
    region.put(data)
    for i in range(4):
        at = i * chunk
        slab.write(
            region.ptr, chunk, offset=SIZE - MIB + at, start=at, stream=stream
        ).wait()
    region.put(bytes(MIB))
    last = [
        slab.read(region.ptr, chunk, offset=SIZE - MIB + at, start=at, stream=stream)
        for at in range(0, MIB, chunk)
    ]
    for one in last:
        assert one.wait() == chunk
    until(lambda: last[-1].event.query())
    assert region.get() == data
    slab.deregister(region.ptr)


def test_a_failed_read_is_raised_by_the_call(opened: Opened, gpu: GPU) -> None:
    """So LMCache answers "not retrieved", and enqueues no kernel behind it."""
    slab = opened()
    stream, region = gpu.stream(), Region(gpu, MIB)
    slab.register(region)
    with inject(slab.namespace, BAD_READ), pytest.raises(SlabError, match="failed"):
        slab.read(region.ptr, 4096, offset=0, start=0, stream=stream)
    slab.read(region.ptr, 4096, offset=0, start=0, stream=stream)  # as if nothing was


def test_a_held_read_stops_its_stream_until_it_is_good(
    opened: Opened, gpu: GPU
) -> None:
    slab = opened("reads=held")
    stream, region = gpu.stream(), Region(gpu, MIB)
    slab.register(region)
    region.put(pattern(MIB, 7))
    slab.write(region.ptr, MIB, offset=0, start=0, stream=stream).wait()
    region.put(bytes(MIB))
    with inject(slab.namespace, Fault.status("read", sct=2, sc=0x81, count=2)):
        read = slab.read(region.ptr, MIB, offset=0, start=0, stream=stream)
        until(lambda: read.event.query())
    assert region.get() == pattern(MIB, 7)
    assert not slab.report()["broken"]


def test_a_held_read_that_goes_on_failing_keeps_its_stream(
    opened: Opened, gpu: GPU, caplog: pytest.LogCaptureFixture
) -> None:
    slab = opened("reads=held&retries=1")
    stream, region = gpu.stream(), Region(gpu, MIB)
    slab.register(region)
    with inject(slab.namespace, BAD_READ):
        read = slab.read(region.ptr, 4096, offset=0, start=0, stream=stream)
        until(lambda: slab.report()["broken"])
    assert read.state == "stalled"
    assert not read.event.query()  # the kernel behind it never runs
    with pytest.raises(SlabError, match="used no more"):
        slab.read(region.ptr, 4096, offset=4096, start=0, stream=stream)
    with pytest.raises(SlabError, match="used no more"):
        slab.write(region.ptr, 4096, offset=4096, start=0, stream=stream)
    assert "Restart the server" in caplog.text


def test_what_could_not_be_written_is_not_read(opened: Opened, gpu: GPU) -> None:
    slab = opened()
    stream, region = gpu.stream(), Region(gpu, MIB)
    slab.register(region)
    with inject(slab.namespace, BAD_WRITE):
        slab.write(region.ptr, 8192, offset=4096, start=0, stream=stream)
        other = gpu.stream()
        with pytest.raises(SlabError, match="hold nothing"):
            slab.read(region.ptr, 4096, offset=8192, start=0, stream=other)
    slab.read(region.ptr, 4096, offset=0, start=0, stream=stream)
    slab.read(region.ptr, 4096, offset=12288, start=0, stream=stream)
    assert slab.report()["bad_ranges"] == [(4096, 12288)]
    region.put(pattern(MIB, 3))
    slab.write(region.ptr, 4096, offset=8192, start=0, stream=stream)
    slab.read(region.ptr, 4096, offset=8192, start=4096, stream=stream)
    assert region.get(4096, 4096) == pattern(4096, 3)
    assert slab.report()["bad_ranges"] == [(4096, 8192)]
    with pytest.raises(SlabError, match="hold nothing"):
        slab.read(region.ptr, 4096, offset=4096, start=0, stream=stream)


def test_strict_reads_follow_each_other_and_groups_do_not(
    opened: Opened, gpu: GPU
) -> None:
    """With the first read held back, only a group lets the second one end."""
    for options, side_by_side in (
        ("reads=held", False),
        ("reads=held&overlap=2", True),
    ):
        slab = opened(options, streams=True)
        stream, region = gpu.stream(), Region(gpu, MIB)
        slab.register(region)
        with inject(slab.namespace, Fault.hold("read").on(slba=0, nlb=8)) as fault:
            first = slab.read(region.ptr, 4096, offset=0, start=0, stream=stream)
            until(lambda: fault.hits)
            second = slab.read(region.ptr, 4096, offset=8192, start=8192, stream=stream)
            if side_by_side:
                assert second.wait(20) == 4096
                again = slab.read(region.ptr, 512, offset=16384, start=0, stream=stream)
                with pytest.raises(TimeoutError):  # a slot that comes again waits
                    again.wait(0.05)
            else:
                with pytest.raises(TimeoutError):
                    second.wait(0.05)
            assert not first.done
        assert second.wait() == 4096
        slab.close()


def test_writes_of_a_range_come_one_behind_the_other(opened: Opened, gpu: GPU) -> None:
    """From whatever streams: the later one's bytes are what stays."""
    slab = opened()
    one, other, region = gpu.stream(), gpu.stream(), Region(gpu, MIB)
    slab.register(region)
    region.put(pattern(MIB, 5))
    with inject(slab.namespace, Fault.hold("write").on(slba=0, nlb=8)) as fault:
        first = slab.write(region.ptr, 4096, offset=0, start=0, stream=one)
        until(lambda: fault.hits)
        second = slab.write(region.ptr, 4096, offset=0, start=8192, stream=other)
        with pytest.raises(TimeoutError):
            second.wait(0.05)
        assert second.state == "waiting"
        assert not first.done
    assert (first.wait(20), second.wait(20)) == (4096, 4096)
    slab.read(region.ptr, 4096, offset=0, start=16384, stream=one)
    assert region.get(16384, 4096) == pattern(MIB, 5)[8192 : 8192 + 4096]


def test_the_stream_is_not_waited_for_by_writes(opened: Opened, gpu: GPU) -> None:
    if not hasattr(gpu.soft, "kernel"):
        pytest.skip("a software GPU's kernel")
    slab = opened()
    stream, region = gpu.stream(), Region(gpu, MIB)
    slab.register(region)
    gpu.soft.kernel(stream)
    write = slab.write(region.ptr, 4096, offset=0, start=0, stream=stream)
    assert not write.done
    gpu.soft.end_kernels()
    assert write.wait() == 4096


def test_a_checked_read_waits_without_the_interpreter(opened: Opened, gpu: GPU) -> None:
    slab = opened()
    stream, region = gpu.stream(), Region(gpu, MIB)
    slab.register(region)
    with inject(slab.namespace, Fault.hold("read")) as fault:
        done: list[int] = []
        thread = threading.Thread(
            target=lambda: done.append(
                slab.read(region.ptr, 4096, offset=0, start=0, stream=stream).wait()
            )
        )
        thread.start()
        until(lambda: fault.hits)
        assert not done
    thread.join(20)
    assert done == [4096]


def test_what_is_wrong_is_said(opened: Opened, gpu: GPU, tmp_path: Path) -> None:
    slab = opened()
    region = Region(gpu, MIB)
    with pytest.raises(aiougds.ArgumentError, match="not registered"):
        slab.read(region.ptr, 4096, offset=0, start=0, stream=0)
    slab.register(region)
    with pytest.raises(aiougds.ArgumentError, match="registered already"):
        slab.register(region)
    with pytest.raises(aiougds.RangeError, match="not inside"):
        slab.read(region.ptr, 4096, offset=0, start=MIB, stream=0)
    with pytest.raises(aiougds.ArgumentError, match="no multiple of the 512"):
        slab.write(region.ptr, 100, offset=0, start=0, stream=0)
    with pytest.raises(aiougds.RangeError):
        slab.write(region.ptr, 4096, offset=SIZE, start=0, stream=0)
    with pytest.raises(OptionError, match="has 4096 bytes"):
        Slab(SlabPlace.parse("emu:?size=4096", SIZE), SIZE)
    used = tmp_path / "used"
    used.write_bytes(bytes(1080) + b"\x53\xef" + bytes(SIZE - 1082))  # ext4
    with pytest.raises(OccupiedError, match="ext"):
        Slab(SlabPlace.parse(f"emu:{used}", SIZE), SIZE)


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("emu:#reads=maybe", "checked or held"),
        ("emu:#overlap=2", "reads=held"),
        ("emu:#reads=held&overlap=7", "from 0 to 6"),
        ("emu:#retry=2", "retries"),
        ("emu:#retries", "name=value"),
        ("", "name a folder"),
    ],
)
def test_a_bad_location_is_refused(location: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        SlabPlace.parse(location, SIZE)


def test_a_folder_gets_a_file_of_the_right_size(opened: Opened, tmp_path: Path) -> None:
    opened()
    assert (tmp_path / FILE).stat().st_size == SIZE
