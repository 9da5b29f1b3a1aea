"""Checks that run in guests, by subject."""

from __future__ import annotations
