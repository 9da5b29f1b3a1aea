"""A software GPU of each vendor, ready to be used; or a real one (``--real-gpu``)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gpu.real import RealGPU
from gpu.rig import GPU
from soft_gpu.control import SoftGPU


@pytest.fixture
def real_gpu() -> Iterator[RealGPU]:
    """The first NVIDIA GPU of this machine."""
    made = RealGPU()
    yield made
    made.give_back()


@pytest.fixture(params=["cuda", "hip"])
def soft_gpu(request: pytest.FixtureRequest) -> SoftGPU:
    """Each vendor's in turn, or a real one."""
    name = f"soft_{request.param}"
    if request.config.getoption("--real-gpu"):
        if request.param == "hip":
            pytest.skip("a real AMD GPU is not driven by these tests")
        name = "real_gpu"
    gpu: SoftGPU = request.getfixturevalue(name)
    return gpu


@pytest.fixture
def gpu(soft_gpu: SoftGPU) -> Iterator[GPU]:
    """A GPU of each vendor in turn."""
    made = GPU(soft_gpu)
    yield made
    if not soft_gpu.lost:
        made.finish()
