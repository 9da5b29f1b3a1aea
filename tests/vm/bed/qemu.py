"""QEMU's command line, from what a machine is said to be."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from vm.bed.machine import GIB, MIB, Blocks, Controller, Machine, Peer, slot

EXIT_PORT = 0xF4
PROGRAM = "qemu-system-x86_64"

Properties = dict[str, object]


@dataclass(frozen=True, slots=True)
class Boot:
    """What a guest is started from."""

    image: Path
    initramfs: Path
    share: Path
    options: tuple[str, ...] = ()
    accel: str = "tcg"


def node(controller: Controller, index: int) -> str:
    return f"{controller.serial}-{index + 1}"


def disk(share: Path, name: str) -> Path:
    return share / "disks" / f"{name}.img"


def peer_file(share: Path, name: str) -> Path:
    return share / "peers" / name


def breakable(blocks: Blocks) -> Properties:
    """Return the layer that fails or holds I/Os."""
    errors = [
        {"event": "none", "iotype": e.on, "sector": e.sector, "errno": e.errno}
        for e in blocks.errors
    ]
    layer: Properties = {"driver": "blkdebug"}
    if errors:
        layer["inject-error"] = errors
    return layer


def chain(name: str, blocks: Blocks, share: Path) -> list[Properties]:
    """Return the block nodes of a namespace, from its file up to ``name``."""
    if not blocks.stored:
        size = blocks.mib * MIB
        null: Properties = {"driver": "null-co", "size": size, "read-zeroes": True}
        return [{**null, "node-name": name}]
    file: Properties = {"driver": "file", "filename": str(disk(share, name))}
    layers = [{**file, "locking": "off"}]
    if blocks.throttle:
        layers.append({"driver": "throttle", "throttle-group": f"tg-{name}"})
    if blocks.errors or blocks.suspend:
        # To hold an I/O, it has to be right below the top.
        layers.append(breakable(blocks))
    layers.append({"driver": "raw"})
    found: list[Properties] = []
    for depth, layer in enumerate(layers):
        top = depth == len(layers) - 1
        layer["node-name"] = name if top else f"{name}.{depth}"
        if found:
            below = "image" if layer["driver"] == "blkdebug" else "file"
            layer[below] = found[-1]["node-name"]
        found.append(layer)
    return found


def size_of_blocks(blocks: Blocks) -> Properties:
    return {"logical_block_size": blocks.lba, "physical_block_size": blocks.lba}


def plain(controller: Controller) -> bool:
    """Whether the controller itself can be given its only namespace."""
    alone = len(controller.blocks) == 1 and controller.subsystem is None
    return alone and not controller.blocks[0].metadata


def place(machine: Machine, name: str, port: bool) -> Properties:
    """Return where a device sits: a slot of the root bus, or a port in that slot."""
    if port:
        return {"bus": f"port-{name}"}
    return {"bus": "pcie.0", "addr": f"{slot(machine, name):x}"}


def port_device(machine: Machine, name: str) -> Properties:
    at = slot(machine, name)
    return {
        "driver": "pcie-root-port",
        "id": f"port-{name}",
        "bus": "pcie.0",
        "addr": f"{at:x}",
        "chassis": at,
        "slot": at,
    }


def controller_devices(machine: Machine, controller: Controller) -> list[Properties]:
    """Return a controller and its namespaces, as ``-device`` and ``device_add``."""
    vectors = controller.vectors or controller.queues + 1
    device: Properties = {
        "driver": "nvme",
        "id": controller.serial,
        # The controllers of a subsystem have to have one serial number.
        "serial": controller.subsystem or controller.serial,
        "mdts": controller.mdts,
        "max_ioqpairs": controller.queues,
        "msix_qsize": vectors,
        "ioeventfd": controller.ioeventfd,
        **place(machine, controller.serial, controller.port),
    }
    if controller.cmb_mib:
        device["cmb_size_mb"] = controller.cmb_mib
    if controller.subsystem:
        device["subsys"] = controller.subsystem
    if plain(controller):
        blocks = controller.blocks[0]
        drive: Properties = {"drive": node(controller, 0), **size_of_blocks(blocks)}
        return [{**device, **drive}]
    devices = [device]
    for index, blocks in enumerate(controller.blocks):
        space: Properties = {
            "driver": "nvme-ns",
            "id": f"ns-{node(controller, index)}",
            "drive": node(controller, index),
            "bus": controller.serial,
            "nsid": index + 1,
            "ms": blocks.metadata,
            "pi": blocks.protection,
            **size_of_blocks(blocks),
        }
        devices.append(space)
    return devices


def peer_device(machine: Machine, peer: Peer) -> Properties:
    where = place(machine, peer.name, peer.port)
    memory = f"memory-{peer.name}"
    return {"driver": "ivshmem-plain", "id": peer.name, "memdev": memory, **where}


def peer_memory(peer: Peer, share: Path) -> Properties:
    return {
        "qom-type": "memory-backend-file",
        "id": f"memory-{peer.name}",
        "mem-path": str(peer_file(share, peer.name)),
        "size": peer.mib * MIB,
        "share": True,
    }


def devices(machine: Machine) -> list[Properties]:
    """Return the machine's own devices, in the order in which they are made."""
    subsystems = dict.fromkeys(c.subsystem for c in machine.controllers if c.subsystem)
    found: list[Properties] = [{"driver": "nvme-subsys", "id": s} for s in subsystems]
    behind = [c.serial for c in machine.controllers if c.port]
    behind += [p.name for p in machine.peers if p.port]
    found += [port_device(machine, name) for name in behind]
    for controller in machine.controllers:
        found += controller_devices(machine, controller)
    return found + [peer_device(machine, peer) for peer in machine.peers]


def objects(machine: Machine, share: Path) -> list[Properties]:
    found = [peer_memory(peer, share) for peer in machine.peers]
    for controller in machine.controllers:
        for index, blocks in enumerate(controller.blocks):
            if blocks.throttle:
                name = f"tg-{node(controller, index)}"
                found.append({"qom-type": "throttle-group", "id": name})
    return found


def block_nodes(machine: Machine, share: Path) -> list[Properties]:
    return [
        layer
        for controller in machine.controllers
        for index, blocks in enumerate(controller.blocks)
        for layer in chain(node(controller, index), blocks, share)
    ]


def shared_folder(tag: str, path: Path, readonly: bool) -> list[str]:
    folder = f"local,id={tag},path={path},security_model=none,multidevs=remap"
    locked = ",readonly=on" if readonly else ""
    device = f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"
    return ["-fsdev", folder + locked, "-device", device]


def kernel_options(machine: Machine, boot: Boot) -> str:
    options = ["console=ttyS0", "quiet", "loglevel=4", "panic=-1", "oops=panic"]
    options += ["log_buf_len=4M", "printk.devkmsg=on", "random.trust_cpu=on"]
    # A busy host stops a guest for seconds: that is nobody's stall.
    options += ["rcupdate.rcu_cpu_stall_timeout=120", "no_timer_check"]
    if machine.iommu:
        options.append("intel_iommu=on")
    return " ".join((*options, *machine.kernel_options, *boot.options))


def command(machine: Machine, boot: Boot) -> list[str]:
    """Return the whole command line."""
    tcg = boot.accel == "tcg"
    accel = "tcg,thread=multi" if tcg else boot.accel
    memory = f"{machine.memory_mib}M"
    # Room for large BARs above the memory, whatever the processor is said to have.
    big = any(peer.mib * MIB >= 4 * GIB for peer in machine.peers)
    # With KVM, only this way can interrupts be remapped.
    board = "q35" if tcg else "q35,kernel-irqchip=split"
    line = [PROGRAM, "-M", board, "-accel", accel, "-cpu", "max" if tcg else "host"]
    line += ["-smp", "2", "-m", memory, "-nodefaults", "-display", "none"]
    line += ["-no-reboot", "-kernel", str(boot.image), "-initrd", str(boot.initramfs)]
    line += ["-append", kernel_options(machine, boot), "-serial", "stdio"]
    line += ["-device", f"isa-debug-exit,iobase={EXIT_PORT:#x},iosize=4"]
    if big:
        line += ["-global", "q35-pcihost.pci-hole64-size=64G"]
    if machine.iommu:
        line += ["-device", "intel-iommu,intremap=on"]  # before what it translates for
    line += shared_folder("host", Path("/"), readonly=True)
    line += shared_folder("share", boot.share, readonly=False)
    line += monitor(boot.share)
    for thing in objects(machine, boot.share):
        line += ["-object", json.dumps(thing)]
    for layer in block_nodes(machine, boot.share):
        line += ["-blockdev", json.dumps(layer)]
    for device in devices(machine):
        line += ["-device", json.dumps(device)]
    return line


def monitor(share: Path) -> list[str]:
    """Wire QEMU's own monitor to a port of the guest: it can break its own hardware."""
    path = share / "qmp.sock"
    return [
        *("-chardev", f"socket,id=qmp-in,path={path},server=on,wait=off"),
        *("-mon", "chardev=qmp-in,mode=control"),
        *("-chardev", f"socket,id=qmp-out,path={path}"),
        *("-device", "virtio-serial-pci"),
        *("-device", "virtserialport,chardev=qmp-out,name=qmp"),
    ]
