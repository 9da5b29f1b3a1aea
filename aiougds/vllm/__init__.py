"""vLLM's offloaded KV blocks on raw NVMe namespaces: a secondary tier.

.. run by: integrations/test_vllm_documented.py

.. code-block:: sh

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "OffloadingConnector",
        "kv_role": "kv_both", "kv_connector_extra_config": {
        "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 10737418240,
        "secondary_tiers": [{"type": "AiougdsTier", "module_path": "aiougds.vllm",
        "addresses": "emu:/data/kv.img?size=100GiB"}]}}'

vLLM itself is imported when the name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiougds import _public as _public  # what errors are called
from aiougds._errors import CapabilityError

if TYPE_CHECKING:
    from aiougds.vllm._tier import AiougdsTier

__all__ = ["AiougdsTier"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from aiougds.vllm import _tier
    except ImportError as error:
        if not (error.name or "").startswith("vllm"):
            raise
        raise CapabilityError(
            f"aiougds.vllm needs vLLM with secondary tiers (0.32 has them): {error}"
        ) from error
    return getattr(_tier, name)
