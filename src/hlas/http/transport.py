"""A transport that lingers when it is closed early, and notices clients that do not read."""

import asyncio
import fcntl
import sys
import termios
from typing import Protocol

# A client must read this many bytes in that time: 1 kB/s, the rate of a poor phone line.
UNREAD_BYTES = 20 * 1024
UNREAD_SECONDS = 20.0


class Lingering(Protocol):
    """A connection that may have answered before the request was complete."""

    # Bytes read and thrown away since the answer that ended our side; None: it has not ended.
    lingered: int | None

    @property
    def answered_early(self) -> bool: ...

    def linger(self) -> None: ...


class Transport:
    """A wrapper around uvloop's transport."""

    __slots__ = ("_due", "_goal", "_protocol", "_transport", "_written")

    def __init__(self, transport: asyncio.Transport, protocol: Lingering) -> None:
        self._transport = transport
        self._protocol = protocol
        self._written = 0
        # How many bytes the client should have taken, and until when; None: it has them all.
        self._goal = 0
        self._due: float | None = None

    def write(self, data: bytes) -> None:
        self._written += len(data)
        self._transport.write(data)

    def close(self) -> None:
        if self._protocol.answered_early:
            self._protocol.linger()
        else:
            self._transport.close()

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._protocol.lingered is not None or self._transport.is_closing()

    def abort(self) -> None:
        self._transport.abort()

    def write_eof(self) -> None:
        self._transport.write_eof()

    def is_stuck(self, now: float) -> bool:
        """Output waits, and the client takes it too slowly; to be asked once a second."""
        waiting = self._transport.get_write_buffer_size()
        if not waiting:
            self._due = None
            return False
        taken = self._written - waiting - self._unconfirmed()
        if self._due is None or taken >= self._goal:
            self._goal = min(taken + UNREAD_BYTES, self._written)
            self._due = now + UNREAD_SECONDS
        return now > self._due

    def _unconfirmed(self) -> int:
        """Bytes that the kernel has and the client does not.

        The kernel takes more only when a third of its buffer, megabytes perhaps, is free again:
        without these an honest client on a slow line would look stuck.
        """
        try:
            number = self._transport.get_extra_info("socket").fileno()
            queued = fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4))
        except (OSError, ValueError):
            return 0  # closed meanwhile, or not Linux
        return int.from_bytes(queued, sys.byteorder)
