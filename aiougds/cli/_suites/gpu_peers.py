"""cuFile and KvikIO as sides: they move GPU memory, so they need ``--device``."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from aiougds._gpu.peers import Cufile, Kvikio, way
from aiougds.cli._suites.movers import Mover, Shape, Steps

if TYPE_CHECKING:
    from aiougds import Namespace
    from aiougds.cli._suites.sides import Place

Reads = Callable[[int, int, int], None]


class GPUPeer:
    """One that reads from a file into memory of a GPU."""

    name: str
    packages: ClassVar[tuple[str, ...]]
    module: ClassVar[str]
    kind: ClassVar[type[Cufile | Kvikio]]

    @property
    def how(self) -> str:
        """The one call, in threads where tasks are more than one."""
        return (
            f"the blocking read of {self.name}, in threads for more than one task; "
            f"a batch is gathered; {way()}"
        )

    @property
    def ours(self) -> bool:
        """It is none of us."""
        return False

    @property
    def version(self) -> str:
        """Of its package; "" where it is not installed."""
        for package in self.packages:
            try:
                return version(package)
            except PackageNotFoundError:
                continue
        return ""

    def why_not(self, place: Place) -> str:
        """Return why it cannot run there; "" if it can."""
        if place.device is None:
            return "moves memory of a GPU: give --device cuda:0"
        if not place.device.startswith("cuda"):
            return f"knows NVIDIA's GPUs, and --device {place.device} was given"
        if not place.path:
            return place.no_path
        if place.loop == "trio":
            return "needs asyncio for its threads, and --loop trio was given"
        if place.writes:
            return "is compared in reads only"
        try:
            importlib.import_module(self.module)
        except ImportError as exc:
            return f"{self.packages[0]} cannot be imported: {exc}"
        return ""

    @asynccontextmanager
    async def opened(
        self, place: Place, ns: Namespace | None, shape: Shape
    ) -> AsyncGenerator[Mover]:
        """Open its file; the memory is of an allocation of ours."""
        import aiougds

        del ns  # another namespace: in a fresh process there is none yet
        assert place.device is not None
        nbytes = shape.share * shape.tasks
        async with (
            aiougds.open("emu:?size=1MiB") as memory,
            memory.allocate(nbytes, device=place.device) as reg,
        ):
            reader = self.kind(Path(place.path))
            try:
                yield GPUMover(reader.read, reg.ptr, shape)
            finally:
                reader.close()


class GPUMover:
    """Steps made of a blocking read."""

    __slots__ = ("_ptr", "_read", "_shape")

    def __init__(self, read: Reads, ptr: int, shape: Shape) -> None:
        self._read = read
        self._ptr = ptr
        self._shape = shape

    def steps(self, task: int) -> Steps:
        """Return what a task calls."""
        read, size, shape = self._read, self._shape.size, self._shape
        base = self._ptr + task * shape.share
        to_thread = asyncio.to_thread

        async def blocking(offset: int) -> None:
            read(base, size, offset)

        async def threaded(offset: int) -> None:
            await to_thread(read, base, size, offset)

        async def many(offsets: Sequence[int]) -> None:
            where = zip(count(base, size), offsets, strict=False)
            await asyncio.gather(*(to_thread(read, at, size, o) for at, o in where))

        return Steps(threaded if shape.tasks > 1 else blocking, None, many, None)


class CufilePeer(GPUPeer):
    """NVIDIA's own."""

    name = "cufile"
    packages = ("cuda-bindings",)
    module = "cuda.bindings.cufile"
    kind = Cufile


class KvikioPeer(GPUPeer):
    """RAPIDS'."""

    name = "kvikio"
    packages = ("kvikio-cu13", "kvikio-cu12")
    module = "kvikio"
    kind = Kvikio


GPU_PEERS: Final = (CufilePeer(), KvikioPeer())
