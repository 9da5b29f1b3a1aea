"""Tests with the real LMCache and vLLM, in environments of their own (`nox -s ...`).

Where a program is not installed its tests are not collected: they are no part of the
default run, and nothing of them is skipped in it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

_NEEDS = {
    "test_lmcache*.py": ("lmcache",),
    "test_vllm*.py": ("lmcache", "vllm"),
}

collect_ignore_glob = [
    pattern
    for pattern, names in _NEEDS.items()
    if any(find_spec(name) is None for name in names)
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a few layers, its weights of a seeded generator; words are w0, w1."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=2048,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    words = models.WordLevel({f"w{n}": n for n in range(512)}, unk_token="w0")
    split = Tokenizer(words)
    split.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens = PreTrainedTokenizerFast(tokenizer_object=split, unk_token="w0")
    tokens.save_pretrained(folder)
    return folder
