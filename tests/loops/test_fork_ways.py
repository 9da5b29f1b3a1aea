"""Every way to fork: threads, handlers, grandchildren, multiprocessing, subprocess."""

from __future__ import annotations

from pathlib import Path

from loops.child import check_all_quiet
from loops.test_fork import QUIET

COMMON = """
import fcntl, multiprocessing, subprocess, traceback
PATH = sys.argv[1] + str(time.monotonic_ns())
ADDRESS = f"emu:{PATH}?size=1MiB"

def wait(pid):
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status

def in_child(work):
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)

def refused(ns):
    for call in (lambda: ns.read(bytearray(BLOCK), offset=0), ns.flush):
        try:
            call()
        except aiougds.ForkedError:
            continue
        raise AssertionError("a child used the device of its parent")

def own_device():
    with blocking.open("emu:?size=1MiB") as own:
        own.write(b"x" * BLOCK, offset=0)
        memory = bytearray(BLOCK)
        with own.register(memory) as reg:
            assert own.read(reg, offset=0) == BLOCK
        assert memory == b"x" * BLOCK

def locked():
    with open(PATH, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False

def busy(ns, stop, rounds, slot):
    data = os.urandom(BLOCK)
    at = (8 + slot) * BLOCK
    ns.write(data, offset=at)
    with ns.allocate(BLOCK) as mine:
        while not stop.is_set():
            assert ns.read(mine, offset=at) == BLOCK
            assert mine.view[:] == data
            rounds[slot] += 1
"""

# Threads that read without end, most of them inside a C call at any time, and the
# executor at work for those that got no queue pair.
BUSY = """
ns = blocking.open(ADDRESS, queues=2, batch_queues=0, mode="{mode}")
stop, rounds = threading.Event(), [0] * 4
threads = [
    threading.Thread(target=busy, args=(ns, stop, rounds, slot)) for slot in range(4)
]
for thread in threads:
    thread.start()

def child():
    refused(ns)
    own_device()

def fork_some():
    for _ in range(3):
        seen = list(rounds)
        while not all(now > before + 3 for now, before in zip(rounds, seen)):
            time.sleep(0.001)
        wait(in_child(child))

forker = threading.Thread(target=fork_some)
forker.start()
fork_some()
forker.join()
stop.set()
for thread in threads:
    thread.join()
assert locked()
ns.close()
assert not locked()
print("done")
"""

# A child outlives the device; a child of the child forks under I/O of its own.
GRANDCHILDREN = """
ns = blocking.open(ADDRESS)
memory = bytearray(b"small")
reg = ns.register(memory)
come, go = os.pipe()

def grandchild():
    refused(ns)
    own_device()
    os.close(go)
    os.read(come, 1)
    assert memory == b"small"

def child():
    with blocking.open("emu:?size=1MiB") as own:
        own.flush()
        pids = [in_child(lambda: (refused(own), grandchild())) for _ in range(2)]
        own.flush()
        os.close(go)
        for pid in pids:
            wait(pid)

pid = in_child(child)
assert locked()
reg.close()
ns.close()
assert not locked()  # although two generations live on
with blocking.open(ADDRESS) as again:
    again.flush()
os.close(come)
os.close(go)
wait(pid)
print("done")
"""

# The device is being opened by a thread while another forks: the child knows nothing
# of it, and has its file open all the same.
OPENING = """
stop = threading.Event()
opened = [0]
def reopen():
    while not stop.is_set():
        with blocking.open(ADDRESS) as ns:
            ns.flush()
        opened[0] += 1
thread = threading.Thread(target=reopen)
thread.start()
pids = []
come, go = os.pipe()
def child():
    os.close(go)
    os.read(come, 1)
for _ in range(15):
    seen = opened[0]
    pids.append(in_child(child))
    while opened[0] < seen + 2 and thread.is_alive():
        time.sleep(0.0005)
stop.set()
thread.join()
assert not locked()
with blocking.open(ADDRESS) as ns:
    ns.flush()
os.close(go)
for pid in pids:
    wait(pid)
print("done")
"""

HANDLER = """
ns = blocking.open(ADDRESS, cancel_grace_s=5)
held = inject(ns, Fault.hold("read", count=1))
children = []
def fork(number, frame):
    pid = os.fork()
    if pid:
        children.append(pid)
        held.clear()
signal.signal(signal.SIGALRM, fork)
def ring():
    while not held.hits:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGALRM)
threading.Thread(target=ring).start()
parent = os.getpid()
try:
    assert ns.read(bytearray(BLOCK), offset=0) == BLOCK
    assert os.getpid() == parent
except aiougds.ForkedError:
    assert os.getpid() != parent
    own_device()
    os._exit(0)
wait(children[0])
ns.close()
print("done")
"""

SPAWNING = """
ns = blocking.open(ADDRESS)
reg = ns.register(bytearray(b"shared" * 8))

def target(queue):
    refused(ns)
    own_device()
    queue.put(bytes(reg.view[:6]))

fork = multiprocessing.get_context("fork")
queue = fork.Queue()
process = fork.Process(target=target, args=(queue,))
process.start()
assert queue.get(timeout=10) == b"shared"
process.join()
assert process.exitcode == 0
with fork.Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]

with multiprocessing.get_context("spawn").Pool(1) as pool:
    code = "from aiougds import blocking\\nblocking.open('emu:?size=1MiB').close()"
    assert pool.apply(exec, (code,)) is None

seen = subprocess.run(
    [sys.executable, "-c", "import os; print(len(os.listdir('/proc/self/fd')))"],
    stdout=subprocess.PIPE, text=True, check=True,
)
# Its own three, and the folder that it reads.
assert seen.stdout == "4\\n", seen.stdout
assert ns.read(bytearray(BLOCK), offset=0) == BLOCK
reg.close()
ns.close()
print("done")
"""

# multiprocessing's children leave through os._exit; these go the whole way, with
# everything of the parent still there to be collected at the end of the interpreter.
LEAVING = """
ns = blocking.open(ADDRESS)
smalls = [bytearray(str(i).encode() * 8) for i in range(50)]
regs = [ns.register(small) for small in smalls]
batch = ns.batch(4)
stop, rounds = threading.Event(), [0] * 2
threads = [
    threading.Thread(target=busy, args=(ns, stop, rounds, slot), daemon=True)
    for slot in range(2)
]
for thread in threads:
    thread.start()
parent = os.getpid()
for _ in range(5):
    seen = sum(rounds)
    while sum(rounds) < seen + 5:
        time.sleep(0.001)
    pid = os.fork()
    if not pid:
        break
    wait(pid)
if os.getpid() == parent:
    stop.set()
    for thread in threads:
        thread.join()
    for reg in regs:
        reg.close()
    ns.close()
    print("done")
else:
    for i, reg in enumerate(regs):
        assert reg.view[:] == smalls[i] == str(i).encode() * 8
"""


def test_every_way_to_fork(tmp_path: Path) -> None:
    bodies = [
        COMMON + body
        for body in (
            BUSY.format(mode="adaptive"),
            BUSY.format(mode="poll"),
            GRANDCHILDREN,
            OPENING,
            HANDLER,
            SPAWNING,
            LEAVING,
        )
    ]
    ended = check_all_quiet(bodies, str(tmp_path / "data"), options=QUIET)
    assert ended == ["done\n"] * len(bodies)
