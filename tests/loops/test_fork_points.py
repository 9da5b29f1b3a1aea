"""In a forked child every public entry point answers with a typed error, at once."""

from __future__ import annotations

import inspect
import textwrap

import pytest
from loops.child import check_quiet, run_script
from loops.test_fork import QUIET, WAIT

import aiougds
from aiougds import blocking, testing

# By class, what each public name does in the child. "raises": ForkedError.
CALLS = {
    "Namespace": {
        "read": "ns.read(reg, offset=0)",
        "write": "ns.write(reg, offset=0)",
        "read_many": "ns.read_many([(reg[:BLOCK], 0)])",
        "write_many": "ns.write_many([(reg[:BLOCK], 0)])",
        "compare": "ns.compare(reg, offset=0)",
        "verify": "ns.verify(offset=0, nbytes=BLOCK)",
        "write_zeroes": "ns.write_zeroes(offset=0, nbytes=BLOCK)",
        "deallocate": "ns.deallocate(offset=0, nbytes=BLOCK)",
        "flush": "ns.flush()",
        "region": "ns.region(0, BLOCK)",
        "using": "ns.using(mode='poll')",
        "register": "ns.register(bytearray(BLOCK))",
        "allocate": "ns.allocate(BLOCK)",
        "register_dmabuf": "ns.register_dmabuf(0, 0, BLOCK)",
        "batch": "ns.batch(4)",
        "as_completed": "enter(ns.as_completed([(reg[:BLOCK], 0)]))",
        "read_on": "ns.read_on(STREAM, reg, offset=0)",
        "write_on": "ns.write_on(STREAM, reg, offset=0)",
        "on_stream": "ns.on_stream(STREAM)",
    },
    "Controller": {
        "namespaces": "ctrl.namespaces()",
        "namespace": "ctrl.namespace()",
        "capabilities": "ctrl.capabilities",
        "info": "ctrl.info",
        "statistics": "ctrl.statistics()",
        "trace": "ctrl.trace(1)",
        "timelines": "ctrl.timelines()",
        "admin": "ctrl.admin(6, nbytes=4096, cdw10=1)",
        "identify": "ctrl.identify()",
        "log_page": "ctrl.log_page(2)",
        "smart_log": "ctrl.smart_log()",
        "error_log": "ctrl.error_log()",
        "events": "next_event(ctrl.events())",
        "reset": "ctrl.reset()",
        "settled": "ctrl.settled()",
        "registration_cache": "ctrl.registration_cache",
        "clear_registration_cache": "ctrl.clear_registration_cache()",
    },
    "Registration": {"map": "reg.map(ns)"},
    "Batch": {
        "read": "batch.read(reg[:BLOCK], offset=0)",
        "write": "batch.write(reg[:BLOCK], offset=0)",
        "flush": "batch.flush()",
        "submit": "batch.submit()",
        "harvest": "batch.harvest()",
    },
    "testing": {
        "inject": "inject(ns, Fault.hold())",
        "counters": "aiougds.testing.counters(ns)",
        "raise_event": "aiougds.testing.raise_event(ns)",
        "resize": "aiougds.testing.resize(ns, 1 << 21)",
        "detach": "aiougds.testing.detach(ns)",
        "attach": "aiougds.testing.attach(ns)",
        "power_cut": "aiougds.testing.power_cut(ns)",
    },
}
# What a closed object answers too, and what closes: of these none may raise or wait.
QUIETLY = {
    "Namespace": {
        "closed": "True",
        "aclose": "None",
        "close": "None",
        "lba_bytes": "BLOCK",
        "nsid": "1",
        "readonly": "False",
        "size": "1 << 20",
    },
    "Controller": {
        "closed": "True",
        "state": "'closed'",
        "state_reason": "''",
        "quarantine": "()",
        "address": "ctrl.address",
        "aclose": "None",
        "close": "None",
    },
    "Batch": {"cancel": "None", "aclose": "None", "close": "None"},
}

SCRIPT = """
{wait}
STREAM = 1 << 20  # a handle; nobody comes to ask a GPU whether it is one
raising = {raising!r}
quiet = {quiet!r}

async def settle(value):
    return await value if hasattr(value, "__await__") else value

async def child(names):
    for call in raising:
        try:
            answer = await asyncio.wait_for(settle(eval(call, names)), 5)
        except aiougds.ForkedError as error:
            assert "parent of this process" in str(error), error
        else:
            raise AssertionError((call, answer))
    if "events" in names:
        try:
            await names["events"].__anext__()
        except aiougds.ForkedError:
            pass
    for call, answer in quiet:
        got = await asyncio.wait_for(settle(eval(call, names)), 5)
        assert got == eval(answer, names), (call, got)
    assert bytes(names["reg"].view) == names["data"]
    assert bytes(names["small"]) == names["data"][:16]
    names["held"].hits, names["held"].clear()
    for name in ("ns", "ctrl", "reg", "batch"):
        repr(names[name])

async def asyncio_main():
    names = dict(globals())
    names["data"] = data = os.urandom(BLOCK)
    names["enter"] = lambda iterator: iterator.__aenter__()
    names["next_event"] = lambda iterator: iterator.__anext__()
    ns = names["ns"] = await aiougds.open("emu:?size=1MiB")
    reg = names["reg"] = ns.allocate(BLOCK)
    small = names["small"] = bytearray(data[:16])
    also = ns.register(small)
    ctrl = names["ctrl"] = ns.controller
    names["events"] = ctrl.events()
    await ns.write(data, offset=0)
    await ns.read(reg, offset=0)
    batch = names["batch"] = ns.batch(8)
    batch.read(reg[:], offset=0)
    batch.submit()
    batch.read(reg[:], offset=0)
    names["held"] = inject(ns, Fault.hold("verify"))
    pid = os.fork()
    if not pid:
        asyncio.events._set_running_loop(None)
        try:
            asyncio.run(child(names))
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    wait(pid)
    await batch.aclose()
    await ns.read(reg, offset=0)
    await also.aclose()
    await reg.aclose()
    await ns.aclose()

def blocking_main():
    names = dict(globals())
    names["data"] = data = os.urandom(BLOCK)
    names["enter"] = lambda iterator: iterator.__enter__()
    names["next_event"] = next
    ns = names["ns"] = blocking.open("emu:?size=1MiB")
    reg = names["reg"] = ns.allocate(BLOCK)
    small = names["small"] = bytearray(data[:16])
    also = ns.register(small)
    names["ctrl"] = ns.controller
    ns.write(data, offset=0)
    ns.read(reg, offset=0)
    batch = names["batch"] = ns.batch(8)
    batch.read(reg[:], offset=0)
    batch.submit()
    batch.read(reg[:], offset=0)
    names["held"] = inject(ns, Fault.hold("verify"))
    pid = os.fork()
    if not pid:
        # In a loop only for the sake of child(): what it calls there is plain.
        coroutine = child(names)
        asyncio.wait_for = lambda work, timeout: work
        try:
            coroutine.send(None)
        except StopIteration:
            sys.exit(0)
        sys.exit(1)
    wait(pid)
    batch.close()
    ns.read(reg, offset=0)
    also.close()
    reg.close()
    ns.close()

{main}
print("parent is well")
"""
OBJECTS = {"Namespace": "ns", "Controller": "ctrl", "Registration": "reg"}


# For other modules of the package, and without a use for anybody else.
INTERNAL = {"close_window", "detach", "failed", "reopen_window"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - INTERNAL


@pytest.mark.parametrize("module", [aiougds, blocking], ids=["awaitable", "blocking"])
def test_no_entry_point_is_left_out(module: object) -> None:
    for name in ("Namespace", "Controller"):
        kind = getattr(module, name)
        known = set(CALLS[name]) | set(QUIETLY[name])
        known.add("controller")
        assert public(kind) <= known, public(kind) - known
    here = {
        name
        for name, value in vars(testing).items()
        if inspect.isfunction(value) and name in testing.__all__
    }
    assert here <= set(CALLS["testing"])


@pytest.mark.parametrize("facade", [False, True], ids=["awaitable", "blocking"])
def test_every_entry_point_in_the_child(facade: bool) -> None:
    module = blocking if facade else aiougds
    raising = [
        call
        for kind, calls in CALLS.items()
        for name, call in calls.items()
        if kind not in ("Namespace", "Controller")
        or name in public(getattr(module, kind))
    ]
    close = "close" if facade else "aclose"
    quiet = []
    for kind, answers in QUIETLY.items():
        of = OBJECTS.get(kind, kind.lower())
        for name, answer in answers.items():
            if name in ("close", "aclose"):
                if name == close:
                    quiet.append((f"{of}.{name}()", answer))
            elif name == "cancel" and not facade:
                quiet.append((f"{of}.cancel()", answer))
            elif not facade or name != "cancel":
                quiet.append((f"{of}.{name}", answer))
    main = "blocking_main()" if facade else "asyncio.run(asyncio_main())"
    body = SCRIPT.format(
        raising=raising, quiet=quiet, main=main, wait=textwrap.dedent(WAIT)
    )
    ended = run_script(body, options=QUIET)
    assert check_quiet(ended) == "parent is well\n"
