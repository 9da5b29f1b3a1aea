"""Every code block is run, in one place; one that is no code is looked at."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
from documents.pages import (
    MARK,
    ROOT,
    RUN_BY,
    Block,
    blocks_of,
    documents,
    every_block,
    run_by,
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
        assert not mark["file"] or mark["file"] in RUN_BY


@pytest.mark.parametrize("who", RUN_BY)
def test_who_runs_blocks_takes_them_from_the_page(who: str) -> None:
    """As many as it is said to run, in a session that there is."""
    found = run_by(who)
    text = (ROOT / "tests" / who).read_text(encoding="utf-8")
    assert f'"{who}"' in text
    assert "run_by(" in text or text.count("the_one(") == len(found)
    sessions = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    assert f"def {RUN_BY[who].session}(session" in sessions


def test_contributors_are_told_who_runs_what() -> None:
    page = ROOT / "docs" / "contributing" / "documents.md"
    text = page.read_text(encoding="utf-8")
    assert [who for who in RUN_BY if f"`tests/{who}`" not in text] == []


def test_what_is_run_elsewhere_is_code() -> None:
    for block in ALL:
        assert not block.run_by or block.language in RUN, block.name


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
