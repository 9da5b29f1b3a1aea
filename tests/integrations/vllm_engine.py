"""One vLLM engine on a CPU: a prompt, and the log-probabilities of what it says.

`python vllm_engine.py MODEL PORT`: PORT of LMCache's server, or 0 for none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def members(value: object) -> Mapping[str, Any]:
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, Mapping) else {}


def main(model: str, port: int) -> None:
    from vllm.triton_utils import dispatcher

    # 0.32 looks into members of LMCache's modules whose __dict__ is no mapping.
    dispatcher.vars = members  # type: ignore[attr-defined]
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig

    more: dict[str, Any] = {}
    if port:
        more["kv_transfer_config"] = KVTransferConfig(
            kv_connector="LMCacheMPConnector",
            kv_role="kv_both",
            kv_connector_extra_config={
                "lmcache.mp.host": "tcp://localhost",
                "lmcache.mp.port": port,
            },
        )
    engine = LLM(
        model=model,
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=2048,
        max_num_batched_tokens=2048,
        enforce_eager=True,
        disable_log_stats=True,
        **more,
    )
    prompt = [(17 * i * i + 5 * i) % 500 for i in range(1300)]
    how = SamplingParams(max_tokens=8, temperature=0, logprobs=4, detokenize=False)
    (done,) = engine.generate([{"prompt_token_ids": prompt}], how)
    said = done.outputs[0]
    print(
        "\n"
        + json.dumps(
            {
                "tokens": list(said.token_ids),
                "logprobs": [
                    {str(token): one.logprob for token, one in step.items()}
                    for step in said.logprobs or []
                ],
                "cached": done.num_cached_tokens,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
