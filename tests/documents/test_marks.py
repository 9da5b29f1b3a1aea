"""Every code block is of a kind that is run or looked at; what is not, is counted."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter

import pytest
from documents.pages import (
    MARK,
    REASONS,
    ROOT,
    Block,
    blocks_of,
    documents,
    every_block,
)
from documents.shape import alike

from aiougds._address import EMU_OPTIONS

pytestmark = pytest.mark.once

ALL = every_block()
RUN = {"python", "sh", "console"}
DATA = {"json": json.loads, "toml": tomllib.loads}
LOOKED_AT = {*DATA, "c", "text"}


def ids(block: Block) -> str:
    return block.name


def is_directive(block: Block) -> bool:
    return block.language.startswith("{")


@pytest.mark.parametrize("block", ALL, ids=ids)
def test_block_is_of_a_known_kind(block: Block) -> None:
    if not is_directive(block):
        assert block.language in RUN | LOOKED_AT, "say the language of the block"
    if block.mark:
        mark = MARK.fullmatch(block.mark)
        assert mark, f"no such mark: {block.mark}"
        if block.not_run:
            assert block.not_run in REASONS
        if block.run_by:
            assert (ROOT / "tests" / block.run_by).exists()


def test_what_is_not_run_is_counted() -> None:
    told = Counter(block.not_run for block in ALL if block.not_run)
    assert dict(told) == {reason: n for reason, n in REASONS.items() if n}


@pytest.mark.parametrize("block", [b for b in ALL if b.language == "text"], ids=ids)
def test_text_is_no_code(block: Block) -> None:
    assert not re.search(r"^([$#] |>>> |aiougds \w)", block.source, re.MULTILINE)
    assert not re.search(r"^\s*(import|async with) ", block.source, re.MULTILINE)


@pytest.mark.parametrize("block", [b for b in ALL if b.language in DATA], ids=ids)
def test_data_can_be_read(block: Block) -> None:
    DATA[block.language](block.source)


def test_every_fence_was_found() -> None:
    for path in documents():
        text = path.read_text(encoding="utf-8")
        fences = len(re.findall(r"^ *(?:```|~~~)", text, re.MULTILINE))
        assert fences == 2 * len(list(blocks_of(path))), path


def test_address_options_are_all_documented() -> None:
    text = (ROOT / "docs" / "reference" / "transports.md").read_text(encoding="utf-8")
    assert [name for name in EMU_OPTIONS if f"`{name}`" not in text] == []


def test_shapes() -> None:
    assert alike("12 reads in 3.5 ms", "7 reads in 10 us\n")
    assert alike("a\n...\nz", "a\nb\nc\nz\n")
    assert alike("state  live...", "state      live, and more")
    assert not alike("12 reads", "12 writes")
    assert not alike("a\nb", "a\n")
