"""Every file descriptor is owned once: closed by its owner, written by nobody else.

Whatever number is given back is taken by a file of the test's own, within a fraction
of a millisecond. At the end each must be the same file still, and have nothing in it.
"""

from __future__ import annotations

from loops.child import check_all_quiet

SCRIPT = """
import contextlib, itertools
import uvloop
KIND = "{kind}"
MODES = ("adaptive", "interrupt", "poll", "inline")
new_loop = uvloop.new_event_loop if KIND == "uvloop" else asyncio.new_event_loop
taken, filling, over, occupying = [], threading.Lock(), threading.Event(), False

def count():
    return len(os.listdir("/proc/self/fd"))

def occupy():
    "Take every number below the highest one that is in use."
    with filling:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        while occupying:
            number = os.memfd_create("taken")
            if number > highest:
                os.close(number)
                break
            taken.append((number, os.fstat(number).st_ino))

def occupy_always():
    while not over.wait(0.0003):
        occupy()

def check():
    for number, inode in taken:
        seen = os.fstat(number)
        assert seen.st_ino == inode, f"number {{number}} was closed twice"
        assert not seen.st_size, (number, os.pread(number, 64, 0))

def run(coroutine):
    loop = new_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        occupy()

async def opened(mode):
    return await aiougds.open("emu:?size=1MiB&threads=1", mode=mode, queues=3)

async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)

async def finish(ns, *, channels=1):
    await ns.flush()
    await until(lambda: ns.controller.statistics().channels <= channels)
    occupy()
    await ns.flush()
    await ns.aclose(timeout_s=5)
    occupy()

def plainly(mode):
    async def main():
        async with await opened(mode) as ns:
            occupy()
            await ns.read(bytearray(BLOCK), offset=0)
        occupy()
    run(main())

def loop_first(mode):
    "A loop is closed over a read that the device answers afterwards."
    ns = run(opened(mode))
    held = inject(ns, Fault.hold("read"))
    loop = new_loop()
    async def leave():
        task = asyncio.ensure_future(ns.read(bytearray(BLOCK), offset=0))
        await until(lambda: held.hits)
        return task
    task = loop.run_until_complete(leave())
    task._log_destroy_pending = False
    loop.close()
    del task
    occupy()
    run(swept(ns, held))

async def swept(ns, held):
    await ns.flush()  # which notices that the other loop is gone
    occupy()
    held.clear()
    await until(lambda: ns.controller.statistics().adopted)
    occupy()
    await finish(ns)

def controller_first(mode):
    "It is closed by one loop while another watches its channel, and goes on."
    ns = run(opened(mode))
    ready, closed = threading.Event(), threading.Event()
    async def other():
        await ns.read(bytearray(BLOCK), offset=0)
        ready.set()
        while not closed.is_set():
            await asyncio.sleep(0.001)
        occupy()
        await asyncio.sleep(0.005)
    thread = threading.Thread(target=lambda: run(other()))
    thread.start()
    ready.wait()
    async def close():
        await ns.aclose(timeout_s=5)
        occupy()
    run(close())
    closed.set()
    thread.join()
    occupy()

def thread_first(mode):
    "A thread ends over what it began."
    ns = blocking.open("emu:?size=1MiB&threads=1", mode=mode, queues=3)
    reg = ns.allocate(BLOCK)
    held = inject(ns, Fault.hold("read"))
    def begin():
        batch = ns.batch(1)
        batch.read(reg[:], offset=0)
        batch.submit()
    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    occupy()
    held.clear()
    reg.close(timeout_s=5)
    while ns.controller.statistics().channels:
        time.sleep(0.001)
    occupy()
    ns.close(timeout_s=5)
    occupy()

def blocked_closing(mode):
    "The facade's controller is closed by a thread that did not use it."
    ns = blocking.open("emu:?size=1MiB&threads=1", mode=mode, queues=3)
    ns.read(bytearray(BLOCK), offset=0)
    thread = threading.Thread(target=ns.close)
    thread.start()
    thread.join()
    occupy()

def events(mode):
    "Somebody waits for events while it is closed."
    async def main():
        ns = await opened(mode)
        async def watch():
            async for _ in ns.controller.events():
                pass
        waiting = asyncio.ensure_future(watch())
        given_up = asyncio.ensure_future(asyncio.sleep(0))
        await asyncio.sleep(0.002)
        await ns.aclose(timeout_s=5)
        occupy()
        await waiting
        occupy()
        ns = await opened(mode)
        given_up = asyncio.ensure_future(watch())
        await asyncio.sleep(0.002)
        given_up.cancel()
        await asyncio.wait([given_up])
        await ns.aclose(timeout_s=5)
        occupy()
    run(main())

def refused(mode):
    if occupying:
        return  # what is counted here was counted in the first round
    async def main():
        gc.collect()
        before = count()
        for address in ("emu:/nowhere/at/all", "emu:?size=1MiB&lba=4096&metadata=8"):
            with contextlib.suppress(aiougds.UGDSError):
                await aiougds.open(address, mode=mode)
        with contextlib.suppress(aiougds.UGDSError):
            await aiougds.open("emu:?size=1MiB", mode=mode, require_direct=True)
        assert count() == before
    run(main())

def lingering(mode):
    "Left with a quarantine, and freed by itself when that is over."
    async def main():
        ns = await aiougds.open("emu:?size=1MiB&threads=1", cancel_grace_s=0.01)
        held = inject(ns, Fault.hold("read", count=1))
        inject(ns, Fault("abort_refused"))
        try:
            async with ns:
                async with asyncio.timeout(0.02):
                    await ns.read(bytearray(BLOCK), offset=0)
        except (TimeoutError, aiougds.ControllerBusyError):
            pass
        occupy()
        held.clear()
        for _ in range(50):
            if ns.controller.closed:
                break
            await (await opened(mode)).aclose()  # frees what lingers
            await asyncio.sleep(0.005)
        assert ns.controller.closed
        occupy()
    run(main())

def torture():
    for mode, scene in itertools.product(MODES, SCENES):
        scene(mode)
        check()

SCENES = [
    plainly, loop_first, controller_first, thread_first, blocked_closing, events,
    refused, lingering,
]
plainly("adaptive")  # what is made once is made
gc.collect()
before = count()
torture()  # with the numbers going round among ourselves
gc.collect()
assert count() == before, (count(), before)
occupying = True
thread = threading.Thread(target=occupy_always, daemon=True)
thread.start()
torture()
over.set()
thread.join()
gc.collect()
assert count() - len(taken) == before, (count(), len(taken), before)
assert len(taken) > 20, taken
check()
print("owned once")
"""


def test_numbers_that_are_used_again() -> None:
    bodies = [SCRIPT.format(kind=kind) for kind in ("asyncio", "uvloop")]
    assert check_all_quiet(bodies) == ["owned once\n"] * 2
