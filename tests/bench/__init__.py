"""The speed table: every line is measured beside its peer, in the same run."""

from __future__ import annotations
