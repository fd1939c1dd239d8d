"""Open connections by address, without a network."""

from typing import Any

import pytest

from hlas import log
from hlas.http.connections import LOG_SECONDS, Connections
from hlas.observe.metrics import Metrics
from hlas.settings import Settings

pytestmark = pytest.mark.usefixtures("logs")


def make(**settings: Any) -> tuple[Connections, Metrics]:
    metrics = Metrics()
    given = {"max_connections_ip": 2, **settings}
    return Connections(Settings(_env_file=None, **given), metrics), metrics


def count_blocked(metrics: Metrics, reason: str = "rate_limited") -> float:
    metrics.hand_over()
    labels = {"reason": reason, "scope": "ip", "route": "connection"}
    return metrics.registry.get_sample_value("hlas_blocked_total", labels) or 0


def test_by_address() -> None:
    """Each address has its own count, and a closed connection frees a place."""
    connections, metrics = make()
    assert [connections.enter(("203.0.113.1", 1)) for _ in range(3)] == [True, True, False]
    assert connections.enter(("203.0.113.2", 1))
    connections.leave(("203.0.113.1", 1))
    assert connections.enter(("203.0.113.1", 1))
    assert not connections.enter(("203.0.113.1", 1))
    assert count_blocked(metrics) == 2


def test_networks() -> None:
    """Edge case 26: a /64 counts as one address, and an IPv4-mapped address as IPv4."""
    connections, _ = make()
    peers = ("2001:db8::1", "2001:db8::2", "2001:db8::3")
    assert [connections.enter((peer, 1)) for peer in peers] == [True, True, False]
    peers = ("::ffff:198.51.100.1", "198.51.100.1", "::ffff:198.51.100.1")
    assert [connections.enter((peer, 1)) for peer in peers] == [True, True, False]


@pytest.mark.parametrize(
    ("settings", "client"),
    [
        ({"trusted_proxies": "10.0.0.0/8"}, ("10.1.2.3", 1)),
        ({"max_connections_ip": 0}, ("203.0.113.1", 1)),
        ({}, None),
    ],
)
def test_not_counted(settings: dict[str, Any], client: tuple[str, int] | None) -> None:
    """Trusted proxies and unix sockets are not counted, nor is anything if the limit is off."""
    connections, metrics = make(**settings)
    assert all(connections.enter(client) for _ in range(1000))
    connections.leave(client)
    assert count_blocked(metrics) == 0
    assert connections._open == {}


def test_nothing_is_kept() -> None:
    """A million addresses that have disconnected use no memory."""
    connections, _ = make()
    for number in range(1000):
        connections.enter((f"203.0.{number % 250}.{number % 7}", 1))
        connections.leave((f"203.0.{number % 250}.{number % 7}", 1))
    assert connections._open == {}


def test_dry_run() -> None:
    """RATE_LIMIT_ENFORCE=false counts what would be refused, and refuses nothing."""
    connections, metrics = make(rate_limit_enforce=False)
    assert all(connections.enter(("203.0.113.1", 1)) for _ in range(5))
    assert count_blocked(metrics, "rate_limited_dry_run") == 3
    for _ in range(5):
        connections.leave(("203.0.113.1", 1))
    assert connections._open == {}


def test_one_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood does not fill the log; every line has the number since the last one."""
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(log, "warning", lambda event, **fields: lines.append(fields))
    connections, _ = make()
    moment = 1000.0
    connections._clock = lambda: moment
    for _ in range(100):
        connections.enter(("203.0.113.1", 1))
    moment += LOG_SECONDS
    connections.enter(("203.0.113.1", 1))
    assert [line["refused"] for line in lines] == [1, 98]
