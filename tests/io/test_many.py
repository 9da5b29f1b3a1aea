"""``read_many`` and ``write_many``: any number, all checked before one is sent."""

from __future__ import annotations

import random
from array import array

import numpy as np
import pytest
from helpers.model import PAGE, number_of, numbered, pattern
from helpers.world import MIB, World, nothing_sent, served

from aiougds import (
    AlignmentError,
    ArgumentTypeError,
    BatchError,
    MediaError,
    MemoryLayoutError,
    RangeError,
    ReadOnlyError,
)
from aiougds.testing import Fault, inject

LBA = 512


@pytest.mark.core
async def test_pairs(world: World) -> None:
    """Every item moves its own bytes; one doorbell can carry them all."""
    count = 128
    async with (
        world.open(emu={"lba": LBA, "size": count * LBA}) as ns,
        ns.register(bytearray(numbered(count, LBA))) as reg,
    ):
        pairs = [(reg[i * LBA : (i + 1) * LBA], i * LBA) for i in range(count)]
        assert await ns.write_many(pairs) == [LBA] * count
        reg.view[:] = bytes(len(reg))
        order = random.Random(1).sample(range(count), count)
        mixed = [(reg[i * LBA : (i + 1) * LBA], n * LBA) for i, n in enumerate(order)]
        assert await ns.read_many(mixed) == [LBA] * count
        got = [number_of(reg.view[i * LBA : (i + 1) * LBA]) for i in range(count)]
        assert got == order


@pytest.mark.core
async def test_arrays(world: World) -> None:
    count = 128
    async with (
        world.open(emu={"lba": LBA, "size": count * LBA}) as ns,
        ns.register(bytearray(numbered(count, LBA))) as reg,
    ):
        plain = array("q", range(0, count * LBA, LBA))
        assert await ns.write_many(reg, offsets=plain, nbytes=LBA) == [LBA] * count
        reg.view[:] = bytes(len(reg))
        order = random.Random(2).sample(range(count), count)
        into = array("q", (n * LBA for n in order))
        done = await ns.read_many(reg, offsets=plain, nbytes=LBA, buf_offsets=into)
        assert done == [LBA] * count
        for source, target in enumerate(order):
            at = target * LBA
            assert number_of(reg.view[at : at + LBA]) == source


@pytest.mark.parametrize("count", [1, 2, 127, 128, 129, 257, 1000])
@pytest.mark.parametrize("form", ["pairs", "arrays"])
@pytest.mark.few
async def test_counts(world: World, count: int, form: str) -> None:
    async with (
        world.open(emu={"lba": LBA, "size": MIB}) as ns,
        ns.register(bytearray(numbered(count, LBA))) as reg,
    ):
        if form == "pairs":
            pairs = [(reg[i * LBA : (i + 1) * LBA], i * LBA) for i in range(count)]
            assert await ns.write_many(pairs) == [LBA] * count
            reg.view[:] = bytes(len(reg))
            assert await ns.read_many(iter(pairs)) == [LBA] * count
        else:
            where = np.arange(count, dtype=np.int64) * LBA
            assert await ns.write_many(reg, offsets=where, nbytes=LBA, fua=True)
            reg.view[:] = bytes(len(reg))
            assert await ns.read_many(reg, offsets=where, nbytes=LBA) == [LBA] * count
        assert reg.view == numbered(count, LBA)


@pytest.mark.few
@pytest.mark.parametrize("form", ["pairs", "arrays"])
async def test_a_hundred_thousand(world: World, form: str) -> None:
    """More than any queue, batch or window holds."""
    count = 100_000
    async with (
        world.open(emu={"data": "none", "size": "1GiB"}) as ns,
        ns.allocate(PAGE) as reg,
    ):
        before = served(ns)
        if form == "pairs":
            done = await ns.read_many([(reg, i * PAGE) for i in range(count)])
        else:
            done = await ns.read_many(
                reg,
                offsets=np.arange(count, dtype=np.int64) * PAGE,
                nbytes=PAGE,
                buf_offsets=np.zeros(count, dtype=np.int64),
            )
        assert done == [PAGE] * count
        assert served(ns) - before == count


@pytest.mark.few
async def test_twenty_thousand_with_data(world: World) -> None:
    count = 20_000
    async with (
        world.open(emu={"lba": LBA, "size": "16MiB"}) as ns,
        ns.register(bytearray(numbered(count, LBA))) as reg,
    ):
        where = np.arange(count, dtype=np.int64) * LBA
        await ns.write_many(reg, offsets=where, nbytes=LBA)
        reg.view[:] = bytes(len(reg))
        order = np.random.default_rng(3).permutation(count).astype(np.int64)
        await ns.read_many(reg, offsets=order * LBA, nbytes=LBA)
        got = np.frombuffer(reg.view, dtype="<u8").reshape(count, LBA // 8)
        assert (got == (order[:, None] + 1)).all()


async def test_lengths_may_differ(world: World) -> None:
    """From no bytes at all to more than one command moves."""
    blocks = [1, 0, 8, 3, 700, 1, 0, 64]
    async with world.open(emu={"lba": LBA, "size": MIB, "mdts": 3}) as ns:
        data = pattern(sum(blocks) * LBA, 4)
        async with ns.register(bytearray(data)) as reg:
            pairs = []
            at = 0
            for count in blocks:
                pairs.append((reg[at * LBA : (at + count) * LBA], (at + 5) * LBA))
                at += count
            lengths = [count * LBA for count in blocks]
            assert await ns.write_many(pairs) == lengths
            reg.view[:] = bytes(len(data))
            assert await ns.read_many(reversed(pairs)) == lengths[::-1]
            assert reg.view == data


async def test_array_items_larger_than_a_command(world: World) -> None:
    nbytes = 5 * PAGE
    async with world.open(emu={"size": MIB, "mdts": 1}, depth=3, batch_depth=3) as ns:
        data = pattern(40 * nbytes, 5)
        async with ns.register(bytearray(data)) as reg:
            where = array("q", range(0, 40 * nbytes, nbytes))
            await ns.write_many(reg, offsets=where, nbytes=nbytes)
            reg.view[:] = bytes(len(data))
            assert (
                await ns.read_many(reg, offsets=where, nbytes=nbytes) == [nbytes] * 40
            )
            assert reg.view == data


async def test_array_form_on_a_slice_counts_from_its_start(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns:
        stored = numbered(4, PAGE)
        await ns.write(stored, offset=0)
        async with ns.allocate(8 * PAGE) as reg:
            where = array("q", [PAGE, 0, 3 * PAGE])
            await ns.read_many(reg[2 * PAGE : 5 * PAGE], offsets=where, nbytes=PAGE)
            into = array("q", [PAGE])
            await ns.read_many(
                reg[6 * PAGE :], offsets=where[2:], nbytes=PAGE, buf_offsets=into
            )
            numbers = [number_of(reg.view[i * PAGE : (i + 1) * PAGE]) for i in range(8)]
            assert numbers == [-1, -1, 1, 0, 3, -1, -1, 3]


async def test_nothing_to_do(world: World) -> None:
    async with world.open() as ns, ns.allocate(PAGE) as reg:
        with nothing_sent(ns):
            assert await ns.read_many([]) == []
            assert await ns.write_many(reg, offsets=array("q"), nbytes=PAGE) == []
            empty = [(reg[0:0], 0), (reg[5:5], ns.size)]
            assert await ns.read_many(empty) == [0, 0]


@pytest.mark.core
async def test_one_bad_pair_and_nothing_is_sent(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(4 * PAGE) as reg:
        good = (reg[:PAGE], 0)
        other = bytearray(PAGE)
        bad = [
            ((reg[:PAGE], 1), AlignmentError, "offset 1 "),
            ((reg[:100], 0), AlignmentError, "length 100 "),
            ((reg[:PAGE], MIB), RangeError, f"past the end .* {MIB}"),
            ((reg, MIB - PAGE), RangeError, f"{4 * PAGE} bytes at offset"),
            ((reg[:PAGE], -PAGE), RangeError, "cannot be negative"),
            ((reg[:PAGE], "0"), ArgumentTypeError, "integer is needed"),
            ((other, 0), MemoryLayoutError, "not registered"),
            ((reg[:PAGE],), ArgumentTypeError, "pair"),
        ]
        for item, kind, words in bad:
            for place in (0, 3):
                pairs = [good] * 3
                pairs.insert(place, item)
                with nothing_sent(ns), pytest.raises(kind, match=words) as caught:
                    await ns.read_many(pairs)
                assert caught.value.__notes__ == [f"item {place}"]
        assert await ns.read_many([good]) == [PAGE]


@pytest.mark.few
@pytest.mark.parametrize("count", [10, 5000, 9001])
async def test_one_bad_array_item_and_nothing_is_sent(world: World, count: int) -> None:
    """Also where it sits behind the first window."""
    bad = [
        (1, 0, AlignmentError, "offset 1 "),
        (MIB, 0, RangeError, "past the end"),
        ((1 << 63) - PAGE, 0, RangeError, "past the end"),
        (-PAGE, 0, RangeError, "negative|past the end"),
        (0, 3 * PAGE + 4, RangeError, "do not fit"),
        (0, -4, RangeError, "negative|do not fit"),
        (0, 2, AlignmentError, "byte 2 .* 4 bytes"),
    ]
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(4 * PAGE) as reg:
        for offset, start, kind, words in bad:
            where, into = array("q", [0]) * count, array("q", [0]) * count
            where[count - 2], into[count - 2] = offset, start
            with nothing_sent(ns), pytest.raises(kind, match=words) as caught:
                await ns.read_many(reg, offsets=where, nbytes=PAGE, buf_offsets=into)
            assert caught.value.__notes__ == [f"item {count - 2}"]


@pytest.mark.few
@pytest.mark.parametrize("count", [10, 5000, 9001])
async def test_one_bad_pair_anywhere_and_nothing_is_sent(
    world: World, count: int
) -> None:
    async with (
        world.open(emu={"size": MIB}) as ns,
        ns.allocate(4 * PAGE) as reg,
        ns.register(bytes(PAGE)) as frozen,
    ):
        good = (reg[:PAGE], 0)
        for bad, kind, words in (
            ((reg[:PAGE], 1), AlignmentError, "offset 1 "),
            ((reg[:PAGE], MIB), RangeError, "past the end"),
            ((frozen, 0), ReadOnlyError, "memory is read-only"),
            ((reg[2 : PAGE + 2], 0), AlignmentError, "byte 2 .* 4 bytes"),
        ):
            pairs = [good] * count
            pairs[count - 2] = bad
            with nothing_sent(ns), pytest.raises(kind, match=words) as caught:
                await ns.read_many(pairs)
            assert caught.value.__notes__ == [f"item {count - 2}"]


async def test_memory_of_items_is_aligned(world: World) -> None:
    """Batches copy nothing: what is not aligned to 4 bytes is refused."""
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(2 * PAGE) as reg:
        for start in (1, 2, 3, 4095):
            part = reg[start : start + PAGE]
            into = array("q", [0, start])
            for work in (
                lambda b=part: ns.read_many([(reg[:PAGE], 0), (b, 0)]),
                lambda i=into: ns.read_many(
                    reg, offsets=array("q", [0, 0]), nbytes=PAGE, buf_offsets=i
                ),
            ):
                words = f"byte {start} .* 4 bytes"
                with (
                    nothing_sent(ns),
                    pytest.raises(AlignmentError, match=words) as bad,
                ):
                    await work()
                assert bad.value.__notes__ == ["item 1"]
            async with ns.batch(1) as batch:
                batch.read(part, offset=0)
                with nothing_sent(ns), pytest.raises(AlignmentError, match="4 bytes"):
                    batch.submit()
        assert await ns.read_many([(reg[4 : 4 + PAGE], 0)]) == [PAGE]


async def test_array_items_of_no_bytes(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        where = array("q", [0, MIB])
        with nothing_sent(ns):
            assert await ns.read_many(reg, offsets=where, nbytes=0) == [0, 0]
            for offset, kind in ((1, AlignmentError), (MIB + PAGE, RangeError)):
                with pytest.raises(kind) as caught:
                    await ns.read_many(reg, offsets=array("q", [0, offset]), nbytes=0)
                assert caught.value.__notes__ == ["item 1"]


async def test_numbers_of_items_count_the_empty_ones(world: World) -> None:
    """In notes of a refusal and in the results of a failure."""
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        empty, good = (reg[0:0], 0), (reg, 0)
        for bad in ((reg, 1), (reg[0:0], 1)):
            with nothing_sent(ns), pytest.raises(AlignmentError) as refused:
                await ns.read_many([empty, good, bad, empty])
            assert refused.value.__notes__ == ["item 2"]
        fault = Fault.status("read", sct=2, sc=0x81).on(slba=5, nlb=1)
        with inject(ns, fault), pytest.raises(BatchError, match="1 of 4") as caught:
            await ns.read_many([empty, good, (reg, 5 * PAGE), empty])
        results = caught.value.results
        assert (results[0], results[1], results[3]) == (0, PAGE, 0)
        assert isinstance(results[2], MediaError)
        assert caught.value.exceptions == (results[2],)


async def test_arguments_that_make_no_sense(world: World) -> None:
    async with world.open(emu={"size": MIB}) as ns, ns.allocate(PAGE) as reg:
        where = array("q", [0])
        calls = [
            ({"requests": reg}, "offsets= and nbytes="),
            ({"requests": reg, "offsets": where}, "offsets= and nbytes="),
            ({"requests": [(reg, 0)], "offsets": where}, "with one registration"),
            ({"requests": 7}, "neither a registration nor pairs"),
            ({"requests": reg, "offsets": [0], "nbytes": PAGE}, "buffer of int64"),
            (
                {"requests": reg, "offsets": array("i", [0, 0]), "nbytes": PAGE},
                "int64",
            ),
            ({"requests": reg, "offsets": array("d", [0]), "nbytes": PAGE}, "int64"),
        ]
        for keywords, words in calls:
            requests = keywords.pop("requests")
            with nothing_sent(ns), pytest.raises(ArgumentTypeError, match=words):
                await ns.read_many(requests, **keywords)
        with nothing_sent(ns), pytest.raises(RangeError, match=r"2 entries, .* has 1"):
            await ns.read_many(
                reg, offsets=where, nbytes=PAGE, buf_offsets=array("q", [0, 0])
            )
        with nothing_sent(ns), pytest.raises(RangeError, match="nbytes=-1"):
            await ns.read_many(reg, offsets=where, nbytes=-1)
        strided = np.zeros(4, dtype=np.int64)[::2]
        with nothing_sent(ns), pytest.raises(ArgumentTypeError, match="contiguous"):
            await ns.read_many(reg, offsets=strided, nbytes=PAGE)


async def test_read_only_memory_may_be_written_from_only(world: World) -> None:
    async with (
        world.open(emu={"size": MIB}) as ns,
        ns.register(pattern(PAGE, 6)) as reg,
    ):
        with nothing_sent(ns), pytest.raises(ReadOnlyError, match="memory is read"):
            await ns.read_many([(reg, 0)])
        with nothing_sent(ns), pytest.raises(ReadOnlyError, match="memory is read"):
            await ns.read_many(reg, offsets=array("q", [0]), nbytes=PAGE)
        assert await ns.write_many([(reg, 0)]) == [PAGE]
