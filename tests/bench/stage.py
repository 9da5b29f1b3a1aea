"""What the measurements stand on: files, loops, cores, threads, and the C helper."""

from __future__ import annotations

import array
import asyncio
import ctypes
import mmap
import os
import random
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
PAGE = 4096
MIB = 1 << 20
LOOPS = ("asyncio", "uvloop")


class Stage:
    """A folder with the benchmark's file and helper, for one run."""

    def __init__(self, folder: str | None = None, file_mib: int = 256) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="aiougds-bench-", dir=folder))
        self.path = self.folder / "data"
        self.nbytes = file_mib * MIB
        self._helper: ctypes.CDLL | None = None

    def make(self) -> None:
        """Write the file and leave it in the page cache."""
        block = random.Random(1).randbytes(MIB)
        with self.path.open("wb") as out:
            for _ in range(self.nbytes // MIB):
                out.write(block)
            out.flush()
            os.fsync(out.fileno())

    def warm(self) -> None:
        """Have the file in the page cache."""
        with self.path.open("rb", buffering=0) as file:
            while file.read(MIB):
                pass

    def chill(self) -> float:
        """Drop it from the page cache; return the share that stayed there."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return self.resident()

    def resident(self) -> float:
        """Return the share of the file that is in the page cache."""
        libc = ctypes.CDLL(None, use_errno=True)
        pages = self.nbytes // PAGE
        flags = (ctypes.c_ubyte * pages)()
        with self.path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
            start = ctypes.addressof(ctypes.c_char.from_buffer(view))
            libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(self.nbytes), flags)
        return sum(flag & 1 for flag in flags) / pages

    def offsets(self, count: int, seed: int = 1, nbytes: int = PAGE) -> list[int]:
        """Return random aligned offsets inside the file, none twice."""
        places = range(self.nbytes // nbytes)
        return [at * nbytes for at in random.Random(seed).sample(places, count)]

    @property
    def helper(self) -> ctypes.CDLL:
        """The C helper, compiled at first use."""
        if self._helper is None:
            self._helper = load_helper(self.folder)
        return self._helper

    def close(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self.folder, ignore_errors=True)


def load_helper(folder: Path) -> ctypes.CDLL:
    """Compile the C files here in ``folder`` (once) and load them."""
    library = folder / "floor.so"
    if not library.exists():
        compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
        sources = map(str, sorted(Path(__file__).parent.glob("*.c")))
        flags = ["-O2", "-shared", "-fPIC", "-pthread"]
        subprocess.run(
            [*compiler.split(), *flags, "-o", str(library), *sources], check=True
        )
    helper = ctypes.CDLL(str(library))
    for name in (
        "floor_handoff",
        "floor_preadv",
        "floor_rings",
        "floor_wait",
        "loop_rw",
        "loop_wait",
        "loop_batches",
    ):
        getattr(helper, name).restype = ctypes.c_int64
    return helper


def int64s(values: list[int]) -> array.array[int]:
    """Return 64-bit words; pass ``words.buffer_info()[0]`` to C."""
    return array.array("q", values)


def at(words: array.array[int]) -> ctypes.c_void_p:
    """Return where the words are."""
    return ctypes.c_void_p(words.buffer_info()[0])


def checked(result: int) -> int:
    """Return a count of the helper, or raise what its negative errno says."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


def run_child(
    module: str, *args: str, under: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a module of this package as a fresh process, perhaps under a tool."""
    tests = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [*under, sys.executable, "-P", "-m", f"bench.{module}", *args],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def run_on(loop: str, work: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run a coroutine function on a fresh loop of that kind."""
    factory = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work())


def loops() -> tuple[str, ...]:
    """Return the kinds of loop that are installed."""
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return LOOPS[:1]
    return LOOPS


def preemptions() -> int:
    """Return how often the kernel took the core from this thread: time not ours."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def threads() -> set[int]:
    """Return the ids of this process's threads."""
    return {int(name) for name in os.listdir("/proc/self/task")}


@contextmanager
def cores_apart() -> Iterator[tuple[int, int]]:
    """The main thread on one core, all threads that exist on another."""
    cores = sorted(os.sched_getaffinity(0))
    here, there = cores[0], cores[-1]
    for tid in threads():
        os.sched_setaffinity(tid, {there})
    os.sched_setaffinity(0, {here})
    try:
        yield here, there
    finally:
        spread(set(cores))


@contextmanager
def one_core() -> Iterator[None]:
    """Every thread, now and later, on one core."""
    cores = os.sched_getaffinity(0)
    spread({min(cores)})
    try:
        yield
    finally:
        spread(cores)


def spread(cores: set[int]) -> None:
    """Let all threads run on these cores."""
    for tid in threads():
        os.sched_setaffinity(tid, cores)


def system() -> str:
    """Describe the machine in a line."""
    model = "unknown processor"
    for row in Path("/proc/cpuinfo").read_text().splitlines():
        if row.startswith("model name"):
            model = row.partition(":")[2].strip()
            break
    release = os.uname()
    return (
        f"{model}, {os.cpu_count()} cores, {release.sysname} {release.release}, "
        f"CPython {sysconfig.get_python_version()}"
    )
