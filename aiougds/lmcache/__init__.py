"""LMCache on raw NVMe namespaces: an L2 adapter, and a backend for its GDS L1 tier.

Named in LMCache's configuration (the plugin ``AiougdsL2Adapter``), or by
``aiougds-lmcache-server --gds-l1-backend aiougds``; docs/how-to/lmcache.md has both.

LMCache itself (0.5.6 or later) is imported when one of the names is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiougds import _public as _public  # what errors are called
from aiougds._errors import CapabilityError

if TYPE_CHECKING:
    from aiougds.lmcache._adapter import AiougdsL2Adapter, AiougdsL2AdapterConfig

__all__ = ["AiougdsL2Adapter", "AiougdsL2AdapterConfig"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from aiougds.lmcache import _adapter
    except ImportError as error:
        if not (error.name or "").startswith("lmcache"):
            raise
        raise CapabilityError(
            "aiougds.lmcache needs LMCache 0.5.6 or later: pip install lmcache "
            f"({error})"
        ) from error
    return getattr(_adapter, name)
