"""``os.fork``: the child holds nothing of the device, and reads its own memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from loops.child import check_quiet, run_script

# From 3.12 on, forking with threads is warned about: here it is the point.
QUIET = ("-W", "ignore::DeprecationWarning")
WAIT = """
    def wait(pid):
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
"""


@pytest.mark.parametrize(
    ("mode", "leave"),
    [
        ("adaptive", "sys.exit(0)"),
        ("interrupt", "os._exit(0)"),
        ("poll", "sys.exit(0)"),
    ],
)
def test_fork_under_io(tmp_path: Path, mode: str, leave: str) -> None:
    body = f"""
    {WAIT}
    ns = blocking.open(f"emu:{{sys.argv[1]}}?size=4MiB", mode="{mode}")
    reg = ns.allocate(64 * BLOCK)
    data = os.urandom(64 * BLOCK)
    reg.view[:] = data
    ns.write(reg, offset=0)
    other = bytearray(data)
    stop = False
    rounds = [0]

    def load(slot):
        with ns.allocate(BLOCK) as mine:
            while not stop:
                assert ns.read(mine, offset=slot * BLOCK) == BLOCK
                assert mine.view[:] == data[slot * BLOCK:(slot + 1) * BLOCK]
                rounds[0] += 1

    threads = [threading.Thread(target=load, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(5):
        seen = rounds[0]
        while rounds[0] < seen + 20:
            time.sleep(0.001)
        pid = os.fork()
        if not pid:
            # The child: its heap is its own, the device is not.
            assert bytes(reg.view) == data
            assert other == data
            for call in (
                lambda: ns.read(reg, offset=0),
                lambda: ns.read(bytearray(BLOCK), offset=0),
                lambda: ns.flush(),
                lambda: ns.read_many([(reg[:BLOCK], 0)]),
                lambda: ns.controller.statistics(),
                lambda: ns.controller.reset(),
                lambda: ns.register(bytearray(BLOCK)),
            ):
                try:
                    call()
                except aiougds.ForkedError as error:
                    assert "parent" in str(error)
                else:
                    os._exit(3)
            try:
                with blocking.open("emu:?size=1MiB") as own:
                    assert own.read(bytearray(BLOCK), offset=0) == BLOCK
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(4)
            ns.close()
            {leave}
        wait(pid)
    stop = True
    for thread in threads:
        thread.join()
    assert ns.read(reg, offset=0) == 64 * BLOCK
    assert reg.view[:] == data
    reg.close()
    ns.close()
    print("parent is well")
    """
    ended = run_script(body, str(tmp_path / "data"), options=QUIET)
    assert check_quiet(ended) == "parent is well\n"


def test_child_does_not_hold_the_lock(tmp_path: Path) -> None:
    """The parent closes, and somebody else may open, while the child lives on."""
    body = f"""
    {WAIT}
    address = f"emu:{{sys.argv[1]}}?size=1MiB"
    ns = blocking.open(address)
    ns.flush()
    come, go = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(go)
        os.read(come, 1)  # until the parent says so
        os._exit(0)
    os.close(come)
    ns.close()
    with blocking.open(address) as again:
        again.write(bytes(BLOCK), offset=0)
    os.close(go)
    wait(pid)
    print("done")
    """
    ended = run_script(body, str(tmp_path / "data"), options=QUIET)
    assert check_quiet(ended) == "done\n"


def test_fork_inside_a_running_loop(tmp_path: Path) -> None:
    body = f"""
    {WAIT}

    async def child(ns, reg, data):
        assert bytes(reg.view) == data
        try:
            await ns.read(reg, offset=0)
        except aiougds.ForkedError:
            pass
        async with aiougds.open("emu:?size=1MiB") as own:
            assert await own.read(bytearray(BLOCK), offset=0) == BLOCK

    async def main():
        async with aiougds.open(f"emu:{{sys.argv[1]}}?size=1MiB") as ns:
            async with ns.allocate(4 * BLOCK) as reg:
                data = os.urandom(4 * BLOCK)
                await ns.write(data, offset=0)
                await ns.read(reg, offset=0)
                held = inject(ns, Fault.hold("read"))
                task = asyncio.create_task(ns.read(reg, offset=0))
                while not held.hits:
                    await asyncio.sleep(0.001)
                pid = os.fork()
                if not pid:
                    def later():
                        # A new loop: the parent's is only a copy here.
                        asyncio.events._set_running_loop(None)
                        asyncio.run(child(ns, reg, data))
                        os._exit(0)
                    try:
                        later()
                    finally:
                        os._exit(5)
                wait(pid)
                held.clear()
                assert await task == 4 * BLOCK
                assert reg.view[:] == data
    asyncio.run(main())
    print("done")
    """
    ended = run_script(body, str(tmp_path / "data"), options=QUIET)
    assert check_quiet(ended) == "done\n"


def test_objects_of_the_parent_are_collected_in_the_child(tmp_path: Path) -> None:
    body = f"""
    {WAIT}
    ns = blocking.open(f"emu:{{sys.argv[1]}}?size=1MiB")
    reg = ns.allocate(BLOCK)
    batch = ns.batch(8)
    batch.read(reg[:], offset=0)
    batch.submit()
    pid = os.fork()
    if not pid:
        repr(ns), repr(reg), repr(ns.controller)
        del batch, reg, ns
        gc.collect()
        sys.exit(0)
    wait(pid)
    assert len(batch.harvest(1)) == 1
    batch.close()
    reg.close()
    ns.close()
    print("done")
    """
    ended = run_script(
        body,
        str(tmp_path / "data"),
        options=("-W", "error::ResourceWarning", *QUIET),
    )
    assert check_quiet(ended) == "done\n"
