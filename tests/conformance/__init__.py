"""Behaviours that every transport has; see ``behaviours.py``."""

from __future__ import annotations
