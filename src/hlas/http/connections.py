"""How many connections each address has open at this worker."""

import time
from typing import Final, TypeAlias

from hlas import log
from hlas.limits.addresses import client_address
from hlas.observe.metrics import Metrics
from hlas.settings import Settings

# The `route` in metrics: a refused connection has not named one.
ROUTE: Final = "connection"
LOG_SECONDS = 60.0

# Address and port, as a socket names its other end; None: it has no address.
Client: TypeAlias = tuple[str, int] | None


class Connections:
    """Open connections by address, without trusted proxies: these carry many visitors."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._most = settings.max_connections_ip
        self._enforce = settings.rate_limit_enforce
        self._trusted = settings.trusted_proxies
        self._metrics = metrics
        self._clock = time.monotonic
        self._open: dict[str, int] = {}
        self._refused = 0
        self._log_at = 0.0

    def enter(self, client: Client) -> bool:
        """Count a new connection, or say that its address has too many."""
        address = self._address(client)
        if address is None:
            return True
        count = self._open.get(address, 0)
        if count >= self._most:
            self._note()
            if self._enforce:
                return False
        self._open[address] = count + 1
        return True

    def leave(self, client: Client) -> None:
        """A connection that was counted has ended."""
        address = self._address(client)
        if address is None:
            return
        count = self._open.pop(address) - 1
        if count:
            self._open[address] = count

    def _address(self, client: Client) -> str | None:
        """The address that it is counted for; None: it is not counted."""
        if not self._most or client is None or self._trusted.trust(client[0]):
            return None
        return client_address(client[0], (), self._trusted)

    def _note(self) -> None:
        """Count every refusal, and log at most once a minute: there may be thousands a second."""
        reason = "rate_limited" if self._enforce else "rate_limited_dry_run"
        self._metrics.blocked(reason, "ip", ROUTE)
        self._refused += 1
        now = self._clock()
        if now >= self._log_at:
            log.warning("connections_refused", refused=self._refused, enforced=self._enforce)
            self._refused, self._log_at = 0, now + LOG_SECONDS
