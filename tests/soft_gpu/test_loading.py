"""How a runtime is found, and what is said when it is not: in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.soft_gpu

PREPARED = "from aiougds._gpu.runtime import is_loaded, load, unavailable\n"


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
        import sys
        import aiougds
        print(sorted({"cuda", "hip", "rocm", "torch", "cupy"} & set(sys.modules)))
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
