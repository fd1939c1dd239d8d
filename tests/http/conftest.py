"""Fixtures for tests of the lane."""

import pytest

from hlas.http.lane import Exchange
from hlas.http.request import Request
from hlas.http.server import Connection


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """The connection of each request that the lane could have handled."""
    seen: list[Connection] = []
    is_plain = Connection._is_plain

    def asked(self: Connection) -> bool:
        seen.append(self)
        return is_plain(self)

    monkeypatch.setattr(Connection, "_is_plain", asked)
    return seen


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each request to send a message, whether the lane handled it."""
    seen: list[bool] = []
    start, apply = Exchange.start, Connection._apply

    def started(self: Exchange) -> None:
        seen.append(True)
        start(self)

    def applied(self: Connection, request: Request) -> None:
        if request.path == "/widget/messages":
            seen.append(False)
        apply(self, request)

    monkeypatch.setattr(Exchange, "start", started)
    monkeypatch.setattr(Connection, "_apply", applied)
    return seen
