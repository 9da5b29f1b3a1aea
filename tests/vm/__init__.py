"""A real kernel and a real PCI bus: QEMU guests that run checks, from ``nox -s vm``."""

from __future__ import annotations
