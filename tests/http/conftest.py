"""What tests of the lane share."""

import pytest

from hlas.api.express import Exchange, Express
from hlas.http.server import Connection


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each request that was refused by the lane or came to it whole: did it answer."""
    seen: list[bool] = []
    complete, refuse = Exchange.complete, Exchange.refuse

    def completed(self: Exchange, body: bytes) -> bool:
        seen.append(complete(self, body))
        return seen[-1]

    def refused(self: Exchange) -> bool:
        is_refused = refuse(self)
        seen.extend([True] * is_refused)
        return is_refused

    monkeypatch.setattr(Exchange, "complete", completed)
    monkeypatch.setattr(Exchange, "refuse", refused)
    return seen


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """Those that asked the lane."""
    seen: list[Connection] = []
    begin = Express.begin

    def watched(self: Express, connection: Connection) -> Exchange | None:
        seen.append(connection)
        return begin(self, connection)

    monkeypatch.setattr(Express, "begin", watched)
    return seen
