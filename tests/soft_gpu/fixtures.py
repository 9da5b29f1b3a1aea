"""Fixtures: a software GPU in this process, as it is after start-up, with no leaks.

``soft_cuda`` and ``soft_hip`` are one vendor's, ``soft_gpu`` is each in turn. The real
cuda-bindings and hip-python run on them. Once a process has loaded one it stays, as a
driver does.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from soft_gpu.build import LIBRARIES, build
from soft_gpu.control import SoftGPU

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "call" and report.failed:
        item.stash[FAILED] = True
    return report


def reserve_rocm(config: pytest.Config) -> None:
    """Name the place of the HIP library before anything looks for it.

    hip-python looks once in a process, and only at what exists: a test that has it
    look before the library is built would hide it from all tests behind it. It wants
    a name without a version, which no loaded library has; libcuda.so.1 is found by its
    own.
    """
    folder = Path(tempfile.mkdtemp(prefix="soft-gpu-"))
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    for name in LIBRARIES["hip"].links:
        place = folder / "lib" / name
        place.parent.mkdir(exist_ok=True)
        place.touch()
    os.environ["ROCM_PATH"] = str(folder)


@pytest.fixture(scope="session")
def soft_libraries() -> dict[str, Path]:
    """Both libraries, built once."""
    return build(Path(os.environ["ROCM_PATH"]))


def _loaded(vendor: str, libraries: dict[str, Path]) -> SoftGPU:
    gpu = SoftGPU(vendor, libraries[vendor])
    with open("/proc/self/maps") as maps:
        mapped = {line.split()[-1] for line in maps if gpu.path.name in line}
    assert mapped == {str(gpu.path)}, "a real driver was loaded in this process before"
    return gpu


@pytest.fixture(scope="session")
def soft_cuda_library(soft_libraries: dict[str, Path]) -> SoftGPU:
    return _loaded("cuda", soft_libraries)


@pytest.fixture(scope="session")
def soft_hip_library(soft_libraries: dict[str, Path]) -> SoftGPU:
    return _loaded("hip", soft_libraries)


def _lent(gpu: SoftGPU, request: pytest.FixtureRequest) -> Iterator[SoftGPU]:
    gpu.reset()
    yield gpu
    try:
        # A test that failed holds on to things, and lost devices give nothing back.
        if not request.node.stash.get(FAILED, False) and not gpu.lost:
            leaks = gpu.leaks()
            assert not leaks, f"left on the GPU: {', '.join(leaks)}"
    finally:
        gpu.reset()


@pytest.fixture
def soft_cuda(
    soft_cuda_library: SoftGPU, request: pytest.FixtureRequest
) -> Iterator[SoftGPU]:
    """A software CUDA GPU."""
    yield from _lent(soft_cuda_library, request)


@pytest.fixture
def soft_hip(
    soft_hip_library: SoftGPU, request: pytest.FixtureRequest
) -> Iterator[SoftGPU]:
    """A software HIP device."""
    yield from _lent(soft_hip_library, request)


@pytest.fixture(params=["cuda", "hip"])
def soft_gpu(request: pytest.FixtureRequest) -> SoftGPU:
    """Each vendor's in turn."""
    gpu: SoftGPU = request.getfixturevalue(f"soft_{request.param}")
    return gpu
