"""What a namespace has done without moving data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, SupportsIndex

from aiougds._failure import NAMES
from aiougds._ffi import lib
from aiougds._namespace_memory import NamespaceMemory
from aiougds._policy import Said
from aiougds._transfer import plain, whole

if TYPE_CHECKING:
    from aiougds._options import IoClass, Mode, PolicyName
    from aiougds._policy import Policy

FUA: Final = lib.UGDS_F_FUA


class NamespaceCommands(NamespaceMemory):
    """Flush, Write Zeroes, Dataset Management, Verify.

    ``policy``, ``mode`` and ``io_class`` say how each is awaited and scheduled, as of
    :meth:`Namespace.using`.
    """

    __slots__ = ()

    async def flush(
        self,
        *,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Put everything that was written before onto the medium (Flush).

        Awaits the command; cancelled, it still waits for its completion. Whose writes
        they were does not matter: it is of the whole namespace (NVMe base, clause 7.1).
        """
        said = Said(policy, mode, io_class)
        op = lib.UGDS_OP_FLUSH | self._planned("flush", said)
        await plain(self._checked(), op, 0, 0, timeout_s)

    async def write_zeroes(
        self,
        *,
        offset: SupportsIndex,
        nbytes: SupportsIndex,
        fua: bool = False,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Write zeroes without moving them; whole blocks.

        The command is Write Zeroes (NVM command set, clause 3.2.8).
        """
        op = lib.UGDS_OP_WRITE_ZEROES | (FUA if fua else 0)
        said = Said(policy, mode, io_class)
        return await self._plain(op, offset, nbytes, said, timeout_s)

    async def deallocate(
        self,
        *,
        offset: SupportsIndex,
        nbytes: SupportsIndex,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Tell the controller that the blocks hold nothing.

        The command is Dataset Management (NVM command set, clause 3.2.3).
        """
        op = lib.UGDS_OP_DEALLOCATE
        said = Said(policy, mode, io_class)
        return await self._plain(op, offset, nbytes, said, timeout_s)

    async def verify(
        self,
        *,
        offset: SupportsIndex,
        nbytes: SupportsIndex,
        policy: Policy | PolicyName | None = None,
        mode: Mode | None = None,
        io_class: IoClass | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Have the controller check that the blocks can be read.

        The command is Verify (NVM command set, clause 3.2.5).
        """
        op = lib.UGDS_OP_VERIFY
        said = Said(policy, mode, io_class)
        return await self._plain(op, offset, nbytes, said, timeout_s)

    async def _plain(
        self,
        op: int,
        offset: SupportsIndex,
        nbytes: SupportsIndex,
        said: Said,
        timeout_s: float | None,
    ) -> int:
        at, length = whole(offset, "offset"), whole(nbytes, "nbytes")
        window = self._checked()
        op |= self._planned(NAMES[op & 0xFF], said, at, length)
        return await plain(window, op, at, length, timeout_s)
