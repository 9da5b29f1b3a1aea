"""Fixtures: a software GPU in this process, as it is after start-up, with no leaks.

``soft_cuda`` and ``soft_hip`` are one vendor's, ``soft_gpu`` is each in turn. The real
cuda-bindings and hip-python run on them. Once a process has loaded one it stays, as a
driver does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from soft_gpu.build import build
from soft_gpu.control import SoftGPU

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "call" and report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def soft_libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both libraries, built once."""
    folder = tmp_path_factory.mktemp("soft-gpu")
    built = build(folder)
    # Where hip-python looks first. It wants a name without a version, which no loaded
    # library has; libcuda.so.1 is found by its own.
    os.environ["ROCM_PATH"] = str(folder)
    return built


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
