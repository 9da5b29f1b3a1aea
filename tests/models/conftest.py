"""Assertions of the machine say what they compared."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "models.calls",
    "models.cells",
    "models.faults",
    "models.homes",
    "models.objects",
    "models.packs",
    "models.reference",
    "models.state",
)
