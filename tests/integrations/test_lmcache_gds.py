"""The GDS backend under LMCache's own GDSContext, on the software GPU's streams.

The staging buffer is memory of the host: LMCache's device is a CPU here, whose streams
are replaced by one of the software GPU.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cuda.bindings import driver
from lmcache.v1.distributed.config import GdsL1Config
from lmcache.v1.gpu_connector import _gds_backends, gds_context
from lmcache.v1.memory_management import GDSMemoryObject, MemoryObjMetadata
from soft_gpu.control import SoftGPU

from aiougds.lmcache import _gds
from aiougds.lmcache._server import add_backend
from aiougds.lmcache._slab import SlabError
from aiougds.testing import Fault, inject

from .lmcache_server import program

pytestmark = pytest.mark.soft_gpu
MIB = 1 << 20
CHUNK = 3 * MIB // 2


def ended(submission: _gds.OperationSubmission) -> None:
    """Wait until it is told how it ended: the stream passes a moment earlier."""
    end = time.monotonic() + 20
    while not submission.bytes_done and time.monotonic() < end:
        time.sleep(0.001)


@pytest.fixture
def stream(soft_cuda: SoftGPU, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A stream of the software GPU, as LMCache's current one."""
    (_, device) = driver.cuInit(0), driver.cuDeviceGet(0)[1]
    context = driver.cuDevicePrimaryCtxRetain(device)[1]
    driver.cuCtxSetCurrent(context)
    handle = driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)[1]

    class Done:
        def is_complete(self) -> bool:
            return driver.cuStreamQuery(handle)[0] == driver.CUresult.CUDA_SUCCESS

    def synchronize(*_: object) -> None:
        assert driver.cuStreamSynchronize(handle)[0] == driver.CUresult.CUDA_SUCCESS

    platform = gds_context.platform_stream
    monkeypatch.setattr(platform, "current_stream", lambda device: handle)
    monkeypatch.setattr(platform, "stream_handle", lambda device, one: int(one))
    monkeypatch.setattr(platform, "synchronize_stream", synchronize)
    monkeypatch.setattr(platform, "synchronize_device", synchronize)
    monkeypatch.setattr(platform, "record_completion_event", lambda *_: Done())
    monkeypatch.setattr(_gds, "new_raw_stream", lambda: other_stream(made))
    made: list[Any] = []
    yield int(handle)
    for one in (handle, *made):
        driver.cuStreamDestroy(one)
    driver.cuDevicePrimaryCtxRelease(device)


def other_stream(made: list[Any]) -> int:
    made.append(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)[1])
    return int(made[-1])


@contextlib.contextmanager
def context(place: str) -> Iterator[gds_context.GDSContext]:
    """As the server makes it."""
    add_backend()
    made = gds_context.GDSContext()
    made.initialize(
        GdsL1Config(
            size_in_bytes=32 * MIB, file_location=place, backend="aiougds",
            use_direct_io=False,
        )
    )  # fmt: skip
    try:
        yield made
    finally:
        made.close()


def chunk(offset: int) -> GDSMemoryObject:
    shape = torch.Size([CHUNK])
    return GDSMemoryObject(
        MemoryObjMetadata(
            shape=shape, dtype=torch.uint8, address=offset, phy_size=CHUNK,
            ref_count=1, shapes=[shape], dtypes=[torch.uint8],
        )
    )  # fmt: skip


READ, WRITE = gds_context.SlabDirection.READ, gds_context.SlabDirection.WRITE


def test_the_backend_is_among_lmcaches_own() -> None:
    add_backend()
    add_backend()
    assert "aiougds" in _gds_backends.available_backends()
    assert _gds_backends.create_backend("aiougds").name == "aiougds"
    assert _gds_backends.create_backend("aiougds").is_default() is False


def test_the_launcher_offers_it() -> None:
    text = subprocess.run(
        [program("aiougds-lmcache-server"), "--help"], capture_output=True, text=True,
        timeout=120, check=True,
    ).stdout  # fmt: skip
    assert "aiougds" in text.partition("--gds-l1-backend")[2].partition("}")[0]


@pytest.mark.parametrize("options", ["", "#reads=held", "#reads=held&overlap=3"])
def test_chunks_go_to_the_slab_and_back(
    tmp_path: Path, stream: int, options: str
) -> None:
    staging = torch.zeros(20 * MIB, dtype=torch.uint8)  # two regions of 16 MiB at most
    slots = [staging[i * CHUNK : (i + 1) * CHUNK] for i in range(12)]
    with context(f"{tmp_path}{options}") as made:
        made.register_gpu_buffer(staging)
        for i, slot in enumerate(slots):
            slot.fill_(i + 1)
            made.transfer_async(chunk(i * CHUNK), slot, WRITE)
        driver.cuStreamSynchronize(stream)
        staging.zero_()
        for i, slot in enumerate(slots):
            made.transfer_async(chunk((11 - i) * CHUNK), slot, READ)
        driver.cuStreamSynchronize(stream)
        for i, slot in enumerate(slots):
            assert slot.eq(12 - i).all()
        done = [one for s in made._submissions.values() for one in s.uncommitted]
        for one in done:
            ended(one)
        assert {one.bytes_done for one in done} == {one.size.value for one in done}
        made.deregister_gpu_buffer(staging)


def test_a_failed_read_is_raised_into_lmcache(tmp_path: Path, stream: int) -> None:
    """Where it answers "not retrieved", before it enqueues the scatter."""
    staging = torch.zeros(4 * MIB, dtype=torch.uint8)
    with context(str(tmp_path)) as made:
        made.register_gpu_buffer(staging)
        made.transfer_async(chunk(0), staging[:CHUNK], WRITE)
        driver.cuStreamSynchronize(stream)
        handle: Any = made._slab_handle
        with (
            inject(handle.slab.namespace, Fault.status("read", sct=2, sc=0x81)),
            pytest.raises(SlabError, match="Unrecovered Read Error"),
        ):
            made.transfer_async(chunk(0), staging[:CHUNK], READ)
        made.transfer_async(chunk(0), staging[:CHUNK], READ)
        made.deregister_gpu_buffer(staging)


def test_a_failed_write_says_so(tmp_path: Path, stream: int) -> None:
    staging = torch.zeros(4 * MIB, dtype=torch.uint8)
    with context(str(tmp_path)) as made:
        made.register_gpu_buffer(staging)
        handle: Any = made._slab_handle
        with inject(handle.slab.namespace, Fault.status("write", sct=2, sc=0x80)):
            submission = handle.write_async(staging.data_ptr(), CHUNK, 0, 0, stream)
            driver.cuStreamSynchronize(stream)
        ended(submission)
        assert submission.bytes_done < 0
        with pytest.raises(SlabError, match="hold nothing"):
            made.transfer_async(chunk(0), staging[:CHUNK], READ)
        made.deregister_gpu_buffer(staging)
