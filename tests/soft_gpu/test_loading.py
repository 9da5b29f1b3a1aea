"""How a runtime is found, and what is said when it is not: in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.soft_gpu

# What of a package the interpreter itself imported (a .pth) is nobody's import here.
PREPARED = """\
import sys
before = set(sys.modules)
from aiougds._gpu.runtime import is_loaded, load, unavailable
"""


def said(program: str, **env: str) -> str:
    """Return what a program prints that has the loader; nothing of a GPU is loaded."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ROCM_", "LD_"))}
    done = subprocess.run(
        [sys.executable, "-c", PREPARED + textwrap.dedent(program)],
        env={**clean, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("runtime", "package", "remedy"),
    [
        ("cuda", "cuda", "pip install aiougds[cuda]"),
        ("hip", "hip", "pip install aiougds[hip]"),
    ],
)
def test_a_missing_package_is_named_with_its_remedy(
    runtime: str, package: str, remedy: str
) -> None:
    answer = said(f"""
        import sys
        sys.modules["{package}"] = None
        print(unavailable("{runtime}"))
        print(is_loaded("{runtime}"))
    """)
    assert remedy in answer
    assert answer.endswith("False")


@pytest.mark.parametrize(
    ("runtime", "library"), [("cuda", "libcuda.so.1"), ("hip", "libamdhip64.so")]
)
def test_a_missing_driver_is_named(runtime: str, library: str) -> None:
    """Or used, on a machine that has it."""
    found, _, answer = said(f"""
        import ctypes
        try:
            print(bool(ctypes.CDLL("{library}")))
        except OSError:
            print(False)
        print(unavailable("{runtime}"))
    """).partition("\n")
    assert found == "True" or library in answer


def test_importing_aiougds_imports_no_gpu_package() -> None:
    answer = said("""
        import aiougds
        new = set(sys.modules) - before
        print(sorted({"cuda", "hip", "rocm", "torch", "cupy"} & new))
    """)
    assert answer == "[]"


def test_files_of_hip_python_in_the_place_of_cudas_are_found_out(
    tmp_path: Path,
) -> None:
    fake = tmp_path / "cuda" / "bindings"
    fake.mkdir(parents=True)
    (fake / "__init__.py").touch()
    (fake.parent / "__init__.py").touch()
    (fake / "driver.py").write_text("HIP_PYTHON = True\n")
    answer = said('print(unavailable("cuda"))', PYTHONPATH=str(tmp_path))
    assert "hip-python-interop" in answer
    assert "--force-reinstall cuda-bindings" in answer


@pytest.mark.parametrize("runtime", ["cuda", "hip"])
def test_a_driver_without_a_device_is_told_apart(
    soft_libraries: dict[str, Path], runtime: str
) -> None:
    answer = said(
        f"""
        import ctypes
        driver = ctypes.CDLL("{soft_libraries[runtime]}")
        driver.soft_gpu_devices(0)
        print(unavailable("{runtime}"))
        driver.soft_gpu_devices(1)
        print(repr(unavailable("{runtime}")), is_loaded("{runtime}"))
        """,
        ROCM_PATH=str(soft_libraries[runtime].parent.parent),
    )
    first, second = answer.splitlines()
    assert "has no GPU to use" in first
    assert second == "'' True"


def test_a_driver_that_lacks_a_function_names_it(
    soft_libraries: dict[str, Path],
) -> None:
    """An old one: everything else is there, so the answer is about this function."""
    answer = said(
        f"""
        import ctypes
        driver = ctypes.CDLL("{soft_libraries["cuda"]}")
        from cuda.bindings import driver as d
        from aiougds._gpu import cuda
        real = d.cuGetProcAddress
        d.cuGetProcAddress = lambda name, *rest: (
            (d.CUresult.CUDA_ERROR_NOT_FOUND, None, None)
            if name == b"cuLaunchHostFunc"
            else real(name, *rest)
        )
        print(unavailable("cuda"))
        """
    )
    assert "cuLaunchHostFunc" in answer
    assert "too old" in answer


def test_both_vendors_are_in_one_process(soft_libraries: dict[str, Path]) -> None:
    answer = said(
        f"""
        import ctypes
        ctypes.CDLL("{soft_libraries["cuda"]}")
        print(load("cuda"), load("hip"), is_loaded("cuda"), is_loaded("hip"))
        """,
        ROCM_PATH=str(soft_libraries["hip"].parent.parent),
    )
    assert answer == "1 2 True True"


def test_opening_loads_what_is_in_use_off_the_loop(
    soft_libraries: dict[str, Path],
) -> None:
    """And initialises nothing: who has only loaded a driver may still fork."""
    answer = said(
        f"""
        import asyncio, ctypes, sys, threading
        import aiougds
        from aiougds._gpu import runtime
        from aiougds._gpu.pointers import BOTH

        class Watched(dict):
            def __getitem__(self, name):
                threads.append((name, threading.current_thread()))
                return super().__getitem__(name)

        threads = []
        runtime._ADDRESSES = Watched(runtime._ADDRESSES)

        async def opened():
            async with aiougds.open("emu:"):
                return [is_loaded(name) for name in BOTH]

        print(asyncio.run(opened()))
        driver = ctypes.CDLL("{soft_libraries["cuda"]}")
        count = ctypes.byref(ctypes.c_int())
        print(asyncio.run(opened()), driver.cuDeviceGetCount(count))
        driver.cuInit(0)
        print(asyncio.run(opened()))
        sys.modules["torch"] = torch = type(sys)("torch")
        torch.version = type(sys)("version")
        torch.cuda = type(sys)("cuda")
        torch.version.hip = "7.0"
        torch.cuda.is_initialized = lambda: False
        print(asyncio.run(opened()))
        torch.cuda.is_initialized = lambda: True
        print(asyncio.run(opened()))
        main = threading.main_thread()
        print([name for name, _ in threads], any(t is main for _, t in threads))
        """,
        ROCM_PATH=str(soft_libraries["hip"].parent.parent),
    )
    assert answer.splitlines() == [
        "[False, False]",
        "[False, False] 3",
        "[True, False]",
        "[True, False]",
        "[True, True]",
        "['cuda', 'hip'] False",
    ]


WATCHED = """
import asyncio, ctypes, sys, threading
import aiougds, aiougds.testing
from aiougds._gpu import cuda, runtime

asked, imported = [], []
found, package = cuda.addresses, cuda._driver

def addresses(symbols):
    asked.append(threading.current_thread() is threading.main_thread())
    return found(symbols)

def driver():
    imported.append(threading.current_thread() is threading.main_thread())
    return package()

runtime._ADDRESSES = {**runtime._ADDRESSES, "cuda": addresses}
cuda._driver = driver

def mine():  # memory of a GPU, and a stream and an event beside it
    from cuda.bindings import driver as d
    d.cuInit(0)
    context = d.cuDevicePrimaryCtxRetain(0)[1]
    d.cuCtxSetCurrent(context)
    event = d.cuEventCreate(2)[1]
    return int(d.cuMemAlloc(4096)[1]), d.CUstream(0), event
"""


@pytest.mark.parametrize(
    ("call", "on_the_loop"),
    [
        ("await ns.read((ptr, 4096, 'cuda:0'), offset=0)", False),
        ("await ns.read(bytearray(4096), offset=0, stream=stream)", False),
        ("await ns.write(bytearray(4096), offset=0, after=[event, event])", False),
        ("await ns.read_many([(reg, 0)], stream=stream)", False),
        ("await ns.read_many([(reg, 0)], after=event)", False),
        ("ns.register((ptr, 4096, 'cuda:0'))", True),
        ("ns.read_on(stream, reg, offset=0).done", True),
        ("aiougds.gpu_event(event)", True),
    ],
)
def test_what_is_awaited_loads_off_the_loop(
    soft_libraries: dict[str, Path], call: str, on_the_loop: bool
) -> None:
    """The first of the process, after an opening that saw no GPU; others cannot."""
    answer = said(
        f"""
        {textwrap.indent(WATCHED, " " * 8).strip()}
        ctypes.CDLL("{soft_libraries["cuda"]}")

        async def main():
            async with aiougds.open("emu:?size=1MiB") as ns, ns.allocate(4096) as reg:
                print(asked, imported)
                ptr, stream, event = mine()
                {call}
                print(asked)

        asyncio.run(main())
        """
    )
    assert answer.splitlines() == ["[] []", f"[{on_the_loop}]"]


@pytest.mark.parametrize("near", ["torch", "cupy", "numba.cuda", "cuda.core", "json"])
def test_an_opening_imports_what_may_come_to_be_used(
    soft_libraries: dict[str, Path], near: str
) -> None:
    """In its thread; nothing is initialised."""
    answer = said(
        f"""
        {textwrap.indent(WATCHED, " " * 8).strip()}
        lib = ctypes.CDLL("{soft_libraries["cuda"]}")
        sys.modules.setdefault("{near}", type(sys)("{near}"))
        if "{near}" == "torch":
            sys.modules["torch"].version = type(sys)("version")
            sys.modules["torch"].version.cuda = "13.0"

        async def main():
            async with aiougds.open("emu:?size=1MiB"):
                print(asked, imported, "cuda.bindings.driver" in sys.modules)
                print(lib.cuDeviceGetCount(ctypes.byref(ctypes.c_int())))

        asyncio.run(main())
        """
    )
    seen = "[] [] False" if near == "json" else "[] [False] True"
    assert answer.splitlines() == [seen, "3"]


def test_a_package_that_is_missing_keeps_nobody_from_opening(
    soft_libraries: dict[str, Path],
) -> None:
    answer = said(f"""
        import ctypes, sys
        import aiougds.blocking
        sys.modules["cuda"] = None
        ctypes.CDLL("{soft_libraries["cuda"]}").cuInit(0)
        with aiougds.blocking.open("emu:"):
            print(is_loaded("cuda"))
    """)
    assert answer == "False"


def test_rocm_5_is_refused(soft_libraries: dict[str, Path]) -> None:
    answer = said(
        """
        from hip import hip
        hip.hipRuntimeGetVersion = lambda: (0, 50_221_153)
        print(unavailable("hip"))
        """,
        ROCM_PATH=str(soft_libraries["hip"].parent.parent),
    )
    assert "version 5" in answer


@pytest.mark.parametrize("needed", [True, False])
def test_a_gpu_that_cannot_be_told_to_look_is_refused(
    soft_libraries: dict[str, Path], needed: bool
) -> None:
    """On hardware, where it would not see what was read; written from, it is no use."""
    answer = said(
        f"""
        import ctypes
        import aiougds.blocking
        from aiougds._ffi import lib
        driver = ctypes.CDLL("{soft_libraries["cuda"]}")
        driver.soft_gpu_missing({24 if needed else 16})
        load("cuda")
        with aiougds.blocking.open("emu:?size=1MiB") as ns:
            with ns.allocate(4096, device="cuda:0") as reg:
                print(reg.staged, ns.read(reg, offset=0))
            lib.ugds_emu_as_hardware(ns.controller._device.ptr)
            try:
                with ns.allocate(4096, device="cuda:0") as reg:
                    print(reg.nbytes)
            except aiougds.CapabilityError as error:
                print(error)
        """
    )
    first, second = answer.splitlines()
    assert first == "True 4096"
    if needed:
        assert "cuFlushGPUDirectRDMAWrites" in second
        assert "update the driver" in second
    else:
        assert second == "4096"
