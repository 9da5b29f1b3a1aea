"""The pictures of the documents: ``python docs/pictures/draw.py`` writes them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from svg import Picture

HERE: Final = Path(__file__).parent


def journey() -> Picture:
    p = Picture(
        900,
        500,
        "A request's journey",
        "A read goes from the awaiting task through one C call into the submission "
        "queue; a doorbell tells the device; its completion is found by the spinning "
        "caller, or wakes the loop, which ends the future.",
    )
    lanes = {90: "your task", 290: "aiougds", 490: "engine in C", 790: "device"}
    for x, name in lanes.items():
        kind = {"your task": "yours", "device": "device"}.get(name, "ours")
        p.box(x - 75, 15, 150, 32, name, kind)
        p.rule(x, 47, x, 485)
    p.arrow(90, 85, 290, 85, "await ns.read(reg, ...)")
    p.arrow(290, 115, 490, 115, "one C call")
    p.box(405, 130, 170, 62, "checks, split, PRPs\ncommands into the\nsubmission queue")
    p.arrow(490, 220, 790, 220, "doorbell: one write, no system call")
    p.box(715, 235, 150, 44, "moves the bytes\nto or from memory", "device")
    p.arrow(790, 310, 490, 310, "completion queue entry")
    p.words(15, 340, "seen while the caller still looks:", of="strong over")
    p.arrow(490, 370, 90, 370, "the call returns the bytes: no turn of the loop")
    p.words(15, 400, "or the caller sleeps:", of="strong over")
    p.arrow(790, 416, 290, 416, "interrupt, if the owner asked for it: eventfd")
    p.arrow(290, 446, 490, 446, "reap")
    p.arrow(290, 474, 90, 474, "the future ends")
    return p


def lifetimes() -> Picture:
    p = Picture(
        900,
        330,
        "Who keeps what alive",
        "An operation in flight owns its namespace, its controller and its "
        "registration; the registration owns the object whose memory it is, and one "
        "mapping for each controller.",
    )
    p.box(20, 130, 170, 62, "operation in flight\nyour task may\ndrop it", "yours")
    p.box(320, 20, 190, 48, "namespace or region\nwhere to read")
    p.box(650, 20, 210, 48, "controller\nqueues, housekeeping")
    p.box(320, 138, 190, 48, "registration\nbounds, in use by n")
    p.box(650, 138, 210, 48, "mapping\none for each controller")
    p.box(320, 256, 190, 48, "your object\ntensor, array, bytes", "yours")
    p.box(650, 256, 210, 48, "device\nreads and writes here", "device")
    p.arrow(190, 140, 320, 60, "keeps")
    p.arrow(190, 161, 320, 161, "keeps")
    p.arrow(510, 44, 650, 44, "keeps")
    p.arrow(510, 162, 650, 162, "keeps")
    p.arrow(415, 186, 415, 256)
    p.words(425, 226, "keeps", of="quiet over")
    p.arrow(755, 138, 755, 68)
    p.words(765, 108, "keeps", of="quiet over")
    p.arrow(650, 280, 510, 280, "DMA", dashed=True)
    p.words(20, 226, "Closing what is kept", of="quiet over")
    p.words(20, 246, "is refused: Busy.", of="quiet over")
    return p


def quarantine() -> Picture:
    p = Picture(
        900,
        390,
        "How an operation ends, and when memory is quarantined",
        "An operation at the device ends with its completion, or its deadline, or a "
        "cancel whose grace runs out; after the last two its memory stays busy until "
        "the late completion, a reset or a removal.",
    )
    p.box(20, 150, 150, 62, "at the device\nthe device may\ntouch the memory", "device")
    p.box(330, 20, 190, 48, "ended\nresult or NVMeError", "yours")
    p.box(330, 115, 190, 62, "busy\nTimeoutError told,\nhealthy controller", "bad")
    p.box(330, 215, 190, 62, "quarantined\nCancelledError told,\nlisted", "bad")
    p.box(330, 315, 190, 62, "wedged\nall that is\noutstanding", "bad")
    p.box(700, 160, 180, 62, "free\nmemory may be\nused and closed", "yours")
    p.arrow(170, 165, 330, 50, "completion")
    p.arrow(170, 175, 330, 146, "timeout_s")
    p.arrow(170, 190, 330, 240, "cancel, then grace")
    p.arrow(120, 212, 330, 340, "hang_timeout_s, Abort")
    p.arrow(520, 44, 700, 170, "at once")
    p.arrow(520, 146, 700, 182, "late completion")
    p.arrow(520, 246, 700, 200, "the same, or reset")
    p.arrow(520, 346, 750, 222, "reset(), or removal")
    return p


def completion() -> Picture:
    p = Picture(
        900,
        390,
        "How a completion is seen, by mode",
        "Inline looks inside the call and then sleeps; interrupt sleeps at once; poll "
        "has a thread of its own look all the time; adaptive looks or sleeps, as it "
        "learnt for this size.",
    )
    p.words(20, 30, "submit", of="strong")
    p.words(640, 30, "completion of a slow one", of="strong")
    p.rule(150, 40, 150, 375)
    p.rule(640, 40, 640, 375)
    rows = ("inline", "interrupt", "poll", "adaptive")
    for n, name in enumerate(rows):
        y = 60 + n * 82
        p.words(20, y + 30, name, of="strong")
    p.box(150, 60, 130, 48, "the call looks\nspin_us at most")
    p.box(280, 60, 360, 48, "sleeps: other tasks run", "yours")
    p.box(640, 60, 200, 48, "eventfd, loop, reap")
    p.box(150, 142, 490, 48, "sleeps: other tasks run", "yours")
    p.box(640, 142, 200, 48, "eventfd, loop, reap")
    p.box(150, 224, 490, 48, "other tasks run; a native thread looks", "yours")
    p.box(640, 224, 200, 48, "thread, eventfd, loop")
    p.box(150, 306, 240, 48, "looks, where that is\nsooner than a wake-up")
    p.box(390, 306, 250, 48, "or sleeps, as learnt", "yours")
    p.box(640, 306, 200, 48, "in the call, or eventfd")
    return p


def gating() -> Picture:
    p = Picture(
        900,
        380,
        "A read in the order of a GPU stream",
        "The stream writes go and waits for done; the executor thread sees go, submits "
        "the commands, and writes done when they are complete; the stream goes on to "
        "the next kernel.",
    )
    p.words(20, 55, "GPU stream", of="strong")
    p.words(20, 195, "executor", of="strong")
    p.words(20, 325, "SSD", of="strong")
    p.rule(130, 100, 890, 100)
    p.rule(130, 235, 890, 235)
    p.box(130, 25, 150, 48, "your kernel\nqueued before", "yours")
    p.box(290, 25, 90, 48, "write\ngo")
    p.box(390, 25, 250, 48, "wait for done\nno host thread is held")
    p.box(650, 25, 150, 48, "your kernel\nsees the bytes", "yours")
    p.box(290, 160, 150, 48, "sees go\nsubmits")
    p.box(560, 160, 150, 48, "sees completions\nwrites done")
    p.box(410, 295, 180, 48, "DMA\nof all commands", "device")
    p.arrow(335, 73, 335, 160)
    p.words(345, 125, "a word in memory", of="quiet over")
    p.arrow(400, 208, 440, 295)
    p.words(330, 268, "doorbell", of="quiet over")
    p.arrow(560, 295, 610, 208)
    p.words(600, 268, "completion queue entries", of="quiet over")
    p.arrow(635, 160, 635, 73)
    p.words(645, 125, "a word in memory", of="quiet over")
    return p


PICTURES: Final[tuple[Callable[[], Picture], ...]] = (
    journey,
    lifetimes,
    quarantine,
    completion,
    gating,
)


def main() -> None:
    for picture in PICTURES:
        file = HERE / f"{picture.__name__}.svg"
        file.write_text(picture().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
