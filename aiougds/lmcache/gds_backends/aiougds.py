"""``--gds-l1-backend aiougds``: imported as a module of LMCache's ``gds_backends``."""

from __future__ import annotations

from aiougds.lmcache._gds import Backend

__all__ = ["Backend"]
