"""A software GPU of each vendor, ready to be used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gpu.rig import GPU
from soft_gpu.control import SoftGPU


@pytest.fixture
def gpu(soft_gpu: SoftGPU) -> Iterator[GPU]:
    """A GPU of each vendor in turn."""
    made = GPU(soft_gpu)
    yield made
    if not soft_gpu.lost:
        made.finish()
