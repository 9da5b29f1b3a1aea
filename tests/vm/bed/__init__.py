"""The host's half of the test bed: kernels, images, machines, results."""

from __future__ import annotations
