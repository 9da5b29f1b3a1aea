"""What the store returns in place of results keeps no frame, and no buffer, alive."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import anyio
import numpy as np
import pytest

from aiougds import UGDSError, store
from aiougds.testing import Fault, inject


@pytest.mark.asyncio
@pytest.mark.parametrize("devices", [1, 2])
async def test_returned_errors_keep_no_buffer(tmp_path: Path, devices: int) -> None:
    """A cycle with a caller's memoryview in it can crash Python 3.11's collector."""
    layout = store.Layout(slot_bytes=8192)
    addresses = [f"emu:{tmp_path}/{i}?size=2MiB" for i in range(devices)]
    async with store.open(addresses, create=layout) as made:
        keys = [bytes([i]) for i in range(8)]
        arrays = [np.zeros(8192, dtype=np.uint8) for _ in keys]
        alive = [weakref.ref(array) for array in arrays]
        gc.disable()
        try:
            await made.put_many([(keys[0], memoryview(arrays[0]))])
            made.pin(keys[0])
            results: list[object] = [*await made.delete_many(keys[:1])]
            for _, ns in made._mount.namespaces:
                with inject(ns, Fault.status("write", sct=2, sc=0x80, count=4)):
                    results += await made.put_many(
                        [(k, memoryview(a)) for k, a in zip(keys, arrays, strict=True)]
                    )
                with inject(ns, Fault.status("read", sct=2, sc=0x81, count=4)):
                    results += await made.get_many(
                        [(k, memoryview(a)) for k, a in zip(keys, arrays, strict=True)]
                    )
            errors = [one for one in results if isinstance(one, UGDSError)]
            assert len(errors) >= 3
            for error in errors:
                link: BaseException | None = error
                while link is not None:
                    assert link.__traceback__ is None
                    link = link.__cause__ or link.__context__
            made.unpin(keys[0])
            arrays.clear()
            await anyio.sleep(0)
            assert [one() for one in alive] == [None] * len(alive)
        finally:
            gc.enable()
