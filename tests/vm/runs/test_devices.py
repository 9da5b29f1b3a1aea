"""Every device that a machine can be given is there, and breaks as it is told."""

from __future__ import annotations

from vm.bed.kernels import LINES
from vm.bed.machine import Blocks, Controller, Machine, MediaError, Peer
from vm.bed.run import GuestRun

MACHINE = Machine(
    controllers=(
        Controller("nv0"),
        Controller("large", (Blocks(lba=4096),)),
        Controller("meta", (Blocks(metadata=8),)),
        Controller("several", (Blocks(mib=8), Blocks(lba=4096, mib=16), Blocks(mib=4))),
        Controller("left", subsystem="both"),
        Controller("right", (), subsystem="both"),
        Controller("mdts0", mdts=0),
        Controller("mdts1", mdts=1),
        Controller("mdts5", mdts=5),
        Controller("one", queues=1),
        Controller("few", queues=8, vectors=2),
        Controller("cmb", cmb_mib=16),
        Controller("fast", (Blocks(stored=False),), ioeventfd=True),
        Controller("bad", (Blocks(errors=(MediaError(400),)),)),
        Controller("slow", (Blocks(throttle=True),)),
        Controller("held", (Blocks(suspend=True),)),
        Controller("hot", port=True),
    ),
    peers=(Peer("peer0"), Peer("peer1", 8 << 10)),
)

RUNS = tuple(
    GuestRun(f"devices-{line}", ("vm.checks.devices",), kernel=line, machine=MACHINE)
    for line in LINES
)
