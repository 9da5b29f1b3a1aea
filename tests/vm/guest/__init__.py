"""The guest's half of the test bed: one interpreter that runs named checks."""

from __future__ import annotations
