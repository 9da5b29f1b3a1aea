"""However a program ends, with whatever left open: its exit code, no word, no hang."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from loops.child import run_scripts

# What "-X dev" says of things left open, and of a machine that has more to do.
ALLOWED = re.compile(
    r".*ResourceWarning: |\s+\S|ResourceWarning: Enable|Object alloc|Executing <"
)


class End(NamedTuple):
    body: str
    code: int = 0
    words: str = "open\n"


EVERYTHING = """
MODE = "{mode}"
kept = []

async def open_all(sleep, start):
    ns = await aiougds.open("emu:?size=4MiB&latency=30us", mode=MODE,
        cancel_grace_s=0.1)
    reg = ns.register(bytearray(64 * BLOCK))
    batch, other = ns.batch(32), ns.batch(4)
    for i in range(16):
        batch.read(reg[i * BLOCK : (i + 1) * BLOCK], offset=i * BLOCK)
    batch.submit()
    other.write(reg[:BLOCK], offset=0)
    held = inject(ns, Fault.hold().on(slba=512, nlb=64, nsid=1))
    kept.extend([ns, reg, batch, other, held])
    start(ns.read, reg[: 8 * BLOCK], 512 * BLOCK)
    start(ns.write, reg[8 * BLOCK : 16 * BLOCK], 520 * BLOCK)
    while held.hits < 2:
        await sleep(0.001)
    threading.Thread(target=hammer, daemon=True).start()
    started.wait()
    print("open", flush=True)

started = threading.Event()
def hammer():
    ns = blocking.open("emu:?size=1MiB")
    kept.append(ns)
    with ns.allocate(BLOCK) as mine:
        while True:
            ns.read(mine, offset=0)
            started.set()

async def asyncio_main(end=lambda: None):
    def start(call, reg, offset):
        kept.append(asyncio.ensure_future(call(reg, offset=offset)))
    await open_all(asyncio.sleep, start)
    end()

def blocking_main():
    ns = blocking.open("emu:?size=4MiB&latency=30us", mode=MODE,
        cancel_grace_s=0.1)
    reg = ns.register(bytearray(64 * BLOCK))
    batch = ns.batch(32)
    for i in range(16):
        batch.read(reg[i * BLOCK : (i + 1) * BLOCK], offset=i * BLOCK)
    batch.submit()
    held = inject(ns, Fault.hold().on(slba=512, nlb=64, nsid=1))
    for call, part, at in (
        (ns.read, reg[: 8 * BLOCK], 512), (ns.write, reg[8 * BLOCK : 16 * BLOCK], 520)
    ):
        threading.Thread(
            target=call, args=(part,), kwargs=dict(offset=at * BLOCK), daemon=True
        ).start()
    kept.extend([ns, reg, batch, held])
    while held.hits < 2:
        time.sleep(0.001)
    threading.Thread(target=hammer, daemon=True).start()
    started.wait()
    print("open", flush=True)
"""

ENDS = {
    "loop": End("asyncio.run(asyncio_main())"),
    "uvloop": End("__import__('uvloop').run(asyncio_main())"),
    "trio": End("""
import trio
async def main():
    async with trio.open_nursery() as nursery:
        def start(call, reg, offset):
            nursery.start_soon(lambda: call(reg, offset=offset))
        await open_all(trio.sleep, start)
        nursery.cancel_scope.cancel()
trio.run(main)
"""),
    "blocking": End("blocking_main()"),
    "exit in a task": End("""
asyncio.run(asyncio_main(lambda: sys.exit(5)))
""", 5),
    "exit in another task": End("""
async def main():
    async def leave():
        sys.exit(6)
    await asyncio_main()
    asyncio.create_task(leave())
    await asyncio.sleep(60)
asyncio.run(main())
""", 6),
    "os._exit in a task": End("asyncio.run(asyncio_main(lambda: os._exit(7)))", 7),
    "os._exit": End("blocking_main(); os._exit(8)", 8),
    "atexit": End("""
import atexit
def last():
    memory = bytearray(BLOCK)
    assert kept[0].read(memory, offset=0) == BLOCK
    with blocking.open("emu:?size=1MiB") as late:
        late.write(memory, offset=0)
    print("at exit", flush=True)
atexit.register(last)
blocking_main()
""", 0, "open\nat exit\n"),
    "a destructor that reads": End("""
class Late:
    def __del__(self, ns=None, error=aiougds.UGDSError, size=BLOCK):
        try:
            self.ns.flush()
        except error:
            pass
late = Late()
blocking_main()
late.ns = kept[0]
"""),
    "terminated in a wait": End("""
def leave(number, frame):
    sys.exit(9)
signal.signal(signal.SIGTERM, leave)
def ring():
    while not held.hits:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGTERM)
ns = blocking.open("emu:?size=1MiB", mode=MODE, cancel_grace_s=0.05)
held = inject(ns, Fault.hold("read"))
threading.Thread(target=ring).start()
print("open", flush=True)
ns.read(bytearray(BLOCK), offset=0)
""", 9),
    "terminated in a loop": End("""
async def main():
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM, asyncio.current_task().cancel
    )
    await asyncio_main()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(60)
try:
    asyncio.run(main())
except asyncio.CancelledError:
    sys.exit(10)
""", 10),
    "terminated by default": End("""
blocking_main()
os.kill(os.getpid(), signal.SIGTERM)
""", -15),
    "interrupted twice": End("""
async def main():
    await asyncio_main()
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(60)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(11)
""", 11),
    "interrupted in trio": End("""
import trio
async def main():
    async with trio.open_nursery() as nursery:
        def start(call, reg, offset):
            nursery.start_soon(lambda: call(reg, offset=offset))
        await open_all(trio.sleep, start)
        os.kill(os.getpid(), signal.SIGINT)
        await trio.sleep(60)
try:
    trio.run(main)
except BaseException as error:
    assert isinstance(error, (KeyboardInterrupt, BaseExceptionGroup)), error
    sys.exit(12)
""", 12),
    "loops in daemon threads": End("""
def loop_of_its_own(run):
    async def main():
        ns = await aiougds.open("emu:?size=1MiB", mode=MODE)
        kept.append(ns)
        memory = bytearray(BLOCK)
        while True:
            await ns.read(memory, offset=0)
            kept.append(None) if len(kept) < 50 else None
    run(main())
import uvloop
for run in (asyncio.run, uvloop.run):
    threading.Thread(target=loop_of_its_own, args=(run,), daemon=True).start()
while len(kept) < 50:
    time.sleep(0.001)
blocking_main()
"""),
    "while devices are opened": End("""
def reopen():
    while True:
        blocking.open("emu:?size=1MiB", mode=MODE).close()
        started.set()
for _ in range(3):
    threading.Thread(target=reopen, daemon=True).start()
started.wait()
print("open", flush=True)
"""),
    "waiting for events": End("""
async def main():
    async def watch():
        async for _ in kept[0].controller.events():
            pass
    await asyncio_main()
    asyncio.create_task(watch())
    await asyncio.sleep(0.01)
asyncio.run(main())
"""),
    "a thread outlives the main one": End("""
ns = blocking.open("emu:?size=1MiB", mode=MODE)
def work():
    for _ in range(100):
        assert ns.read(bytearray(BLOCK), offset=0) == BLOCK
    ns.close()
    print("closed", flush=True)
threading.Thread(target=work).start()
print("open", flush=True)
""", 0, "open\nclosed\n"),
}  # fmt: skip


MODES = ("adaptive", "poll", "interrupt", "inline")


def check_ends(dev: bool, turn: int, names: list[str]) -> None:
    bodies = [
        EVERYTHING.format(mode=MODES[(number + turn) % 4]) + ENDS[name].body
        for number, name in enumerate(names)
    ]
    options = ("-X", "dev") if dev else ()
    for name, ended in zip(names, run_scripts(bodies, options=options), strict=True):
        end = ENDS[name]
        assert ended.returncode == end.code, (name, ended.returncode, ended.stderr)
        assert ended.stdout == end.words, (name, ended.stdout, ended.stderr)
        for line in ended.stderr.splitlines():
            assert dev, (name, ended.stderr)
            assert ALLOWED.match(line), (name, ended.stderr)


@pytest.mark.parametrize("dev", [False, True], ids=["plain", "dev"])
def test_every_way_to_end(*, dev: bool) -> None:
    check_ends(dev, 0, list(ENDS)[dev::2])


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("turn", range(4))
@pytest.mark.parametrize("dev", [False, True], ids=["plain", "dev"])
def test_every_way_to_end_in_every_mode(*, dev: bool, turn: int) -> None:
    check_ends(dev, turn, list(ENDS))
