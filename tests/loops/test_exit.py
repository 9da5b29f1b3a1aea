"""The interpreter ends with everything left open: no crash, no hang, no traceback."""

from __future__ import annotations

import re

import pytest
from loops.child import check_quiet, run_script

ALLOWED = re.compile(r".*ResourceWarning: unclosed <|\s+\S|ResourceWarning: Enable")


def check_exit(body: str, code: int = 0) -> str:
    ended = run_script(body, options=("-W", "default"))
    assert ended.returncode == code, (ended.returncode, ended.stderr)
    assert "Traceback" not in ended.stderr, ended.stderr
    assert "Fatal" not in ended.stderr, ended.stderr
    for line in ended.stderr.splitlines():
        assert ALLOWED.match(line), ended.stderr
    return ended.stdout


LEAVE_ALL = """
async def main():
    global kept
    ns = await aiougds.open("emu:?size=4MiB", mode="{mode}", cancel_grace_s=0.05)
    reg = ns.register(bytearray(64 * BLOCK))
    batch = ns.batch(8)
    await ns.read(reg, offset=0)
    batch.read(reg[:BLOCK], offset=0)
    batch.submit()
    fault = inject(ns, Fault.hold("read"))
    kept = [ns, reg, batch, fault, {start}]
    while not fault.hits:
        await sleep(0.001)
    print("left open")
"""
ASYNCIO = "asyncio.create_task(ns.read(reg[BLOCK:], offset=0))"


@pytest.mark.parametrize("mode", ["adaptive", "interrupt", "poll", "inline"])
@pytest.mark.parametrize("runner", ["asyncio", "uvloop"])
def test_a_loop_ends_with_everything_open(runner: str, mode: str) -> None:
    body = f"import {runner}\nsleep = asyncio.sleep\n"
    body += LEAVE_ALL.format(mode=mode, start=ASYNCIO) + f"{runner}.run(main())\n"
    assert check_exit(body) == "left open\n"


@pytest.mark.parametrize("mode", ["adaptive", "poll"])
def test_a_trio_run_ends_with_everything_open(mode: str) -> None:
    body = """
import trio
async def sleep(seconds):
    await trio.sleep(seconds)
async def nursery_main():
    async with trio.open_nursery() as nursery:
        async def read(ns, reg):
            await ns.read(reg[BLOCK:], offset=0)
        global start
        def start(ns, reg):
            nursery.start_soon(read, ns, reg)
        await main()
        nursery.cancel_scope.cancel()
"""
    body += LEAVE_ALL.format(mode=mode, start="start(ns, reg)")
    body += "trio.run(nursery_main)\n"
    assert check_exit(body) == "left open\n"


def test_a_closed_loop_with_a_read_in_flight() -> None:
    body = "sleep = asyncio.sleep\n" + LEAVE_ALL.format(mode="interrupt", start=ASYNCIO)
    body += """
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
kept[-1]._log_destroy_pending = False
loop.close()
"""
    assert check_exit(body) == "left open\n"


def test_a_loop_that_is_never_closed() -> None:
    body = "sleep = asyncio.sleep\n" + LEAVE_ALL.format(mode="interrupt", start=ASYNCIO)
    body += """
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
kept[-1]._log_destroy_pending = False
loop.__class__.__del__ = lambda self: None  # asyncio's own warning is not ours
"""
    assert check_exit(body) == "left open\n"


def test_blocking_with_everything_open() -> None:
    assert (
        check_exit("""
ns = blocking.open("emu:?size=4MiB")
reg = ns.allocate(64 * BLOCK)
batch = ns.batch(4)
batch.read(reg[:BLOCK], offset=0)
batch.submit()
ns.read(reg, offset=0)
print("left open")
""")
        == "left open\n"
    )


@pytest.mark.parametrize("mode", ["adaptive", "interrupt", "poll"])
def test_daemon_threads_in_the_middle_of_reads(mode: str) -> None:
    assert (
        check_exit(f"""
ns = blocking.open("emu:?size=4MiB", mode="{mode}")
fault = inject(ns, Fault.hold("read").on(slba=7, nlb=1))
def wait():
    ns.read(bytearray(BLOCK), offset=7 * BLOCK)
def load():
    memory = bytearray(BLOCK)
    while True:
        ns.read(memory, offset=0)
for work in (wait, load, load):
    threading.Thread(target=work, daemon=True).start()
while not fault.hits:
    time.sleep(0.001)
print("left open")
""")
        == "left open\n"
    )


def test_exit_code_of_an_exception_is_kept() -> None:
    ended = run_script("""
        async def main():
            ns = await aiougds.open("emu:?size=1MiB")
            await ns.read(bytearray(BLOCK), offset=0)
            raise SystemExit(7)
        asyncio.run(main())
    """)
    assert ended.returncode == 7
    assert "Traceback" not in ended.stderr


def test_keyboard_interrupt_of_asyncio_run() -> None:
    """Ctrl-C during a read: everything is closed on the way out."""
    ended = run_script("""
        async def main():
            async with aiougds.open("emu:?size=1MiB", cancel_grace_s=0.05) as ns:
                async with ns.allocate(BLOCK) as reg:
                    with inject(ns, Fault.hold("read", count=1)) as held:
                        def interrupt():
                            while not held.hits:
                                time.sleep(0.001)
                            os.kill(os.getpid(), signal.SIGINT)
                        threading.Thread(target=interrupt).start()
                        try:
                            await ns.read(reg, offset=0)
                        finally:
                            while ns.controller.quarantine:
                                time.sleep(0.001)
                                await asyncio.sleep(0)
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted")
    """)
    assert check_quiet(ended) == "interrupted\n"


def test_a_clean_program_is_silent() -> None:
    ended = run_script(
        """
        async def main():
            # or debug=True tells of each turn that a busy machine made slow
            asyncio.get_running_loop().slow_callback_duration = 60
            async with aiougds.open("emu:?size=1MiB") as ns:
                async with ns.allocate(8 * BLOCK) as reg:
                    await ns.write(reg, offset=0)
                    await ns.read(reg, offset=0)
                    await ns.read_many([(reg[:BLOCK], 0)])
                    async with ns.as_completed([(reg[:BLOCK], 0)]) as done:
                        async for index, result in done:
                            assert (index, result) == (0, BLOCK)
        asyncio.run(main(), debug=True)
        with blocking.open("emu:?size=1MiB") as ns:
            ns.read(bytearray(BLOCK), offset=0)
        """,
        options=("-X", "dev", "-W", "error"),
    )
    assert check_quiet(ended) == ""
