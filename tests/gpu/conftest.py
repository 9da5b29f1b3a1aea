"""A software GPU of each vendor, ready to be used; or a real one (``--real-gpu``)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gpu.real import RealGPU
from gpu.rig import GPU
from soft_gpu.control import SoftGPU


@pytest.fixture
def real_gpu(request: pytest.FixtureRequest) -> Iterator[RealGPU]:
    """The first NVIDIA GPU of this machine."""
    made = RealGPU()
    if request.node.get_closest_marker("two_gpus") and made.count < 2:
        made.give_back()
        pytest.skip("this machine has one GPU")
    yield made
    made.give_back()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each vendor's in turn, or the one real one."""
    if "soft_gpu" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("vendors")
    names = mark.args if mark else ("cuda", "hip")
    if metafunc.config.getoption("--real-gpu"):
        names = tuple(name for name in names if name == "cuda")
    metafunc.parametrize("soft_gpu", names, indirect=True)


@pytest.fixture
def soft_gpu(request: pytest.FixtureRequest) -> SoftGPU:
    """Each vendor's in turn, or a real one."""
    real = request.config.getoption("--real-gpu")
    name = "real_gpu" if real else f"soft_{request.param}"
    gpu: SoftGPU = request.getfixturevalue(name)
    return gpu


@pytest.fixture
def gpu(soft_gpu: SoftGPU) -> Iterator[GPU]:
    """A GPU of each vendor in turn."""
    made = GPU(soft_gpu)
    yield made
    if not soft_gpu.lost:
        made.finish()
