"""Reading a conversation page by page.

Seen failing with these defects planted: `>=` instead of `>` in the query, the limit without the
one row more that tells whether there is another page, the conversation left out of the condition.
"""

from datetime import datetime
from typing import Any

import pytest
import uuid_utils

from factories import Site, make_site
from hlas.store.db import Database


async def fill(site: Site, count: int) -> list[str]:
    return [(await site.send(f"m{number}")).json()["message_id"] for number in range(count)]


async def get(site: Site, conversation_id: str, **query: Any) -> tuple[int, dict[str, Any]]:
    answer = await site.live.client.get(
        f"/widget/conversations/{conversation_id}/messages", headers=site.headers(), params=query
    )
    return answer.status_code, answer.json()


async def test_page_shape(site: Site) -> None:
    """Oldest first, every field of the contract, and how to go on."""
    (message_id,) = await fill(site, 1)
    page = await site.history()
    (message,) = page["messages"]
    assert datetime.fromisoformat(message.pop("created_at")).tzinfo is not None
    assert message == {
        "id": message_id,
        "seq": 1,
        "role": "user",
        "content": "m0",
        "metadata": {},
    }
    assert page["conversation_id"] == site.conversation_id
    assert page["paging"] == {"limit": 50, "offset": 0, "has_more": False, "next_after": 1}


async def test_empty(site: Site) -> None:
    """Nothing was said yet: an empty page from which a reader can go on."""
    page = await site.history()
    assert (page["messages"], page["paging"]["next_after"]) == ([], 0)
    assert not page["paging"]["has_more"]
    beyond = await site.history(after=7)
    assert (beyond["messages"], beyond["paging"]["next_after"]) == ([], 7)


async def test_by_after(site: Site) -> None:
    """Edge case 20a: who follows next_after sees every message once, in order, seq 1..n."""
    ids = await fill(site, 7)
    seen: list[str] = []
    after, more = 0, True
    while more:
        page = await site.history(after=after, limit=3)
        assert page["paging"]["offset"] is None
        seen += [message["id"] for message in page["messages"]]
        assert [message["seq"] for message in page["messages"]] == list(
            range(after + 1, page["paging"]["next_after"] + 1)
        )
        after, more = page["paging"]["next_after"], page["paging"]["has_more"]
    assert seen == ids
    await site.send("late")
    (late,) = (await site.history(after=after))["messages"]
    assert (late["seq"], late["content"]) == (8, "late")


async def test_by_offset(site: Site) -> None:
    """An offset skips so many; has_more is exact at the edge."""
    ids = await fill(site, 6)
    page = await site.history(offset=2, limit=3)
    assert [message["id"] for message in page["messages"]] == ids[2:5]
    assert page["paging"] == {"limit": 3, "offset": 2, "has_more": True, "next_after": 5}
    exact = await site.history(offset=3, limit=3)
    assert [message["id"] for message in exact["messages"]] == ids[3:]
    assert not exact["paging"]["has_more"]


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0},
        {"limit": 101},
        {"limit": "x"},
        {"offset": -1},
        {"after": -1},
        {"after": 2**31},
        {"after": 1, "offset": 1},
        {"surprise": 1},
    ],
)
async def test_invalid_paging(site: Site, query: dict[str, Any]) -> None:
    """A page that cannot be is a 422 in our shape, and the input is not echoed."""
    status, body = await get(site, site.conversation_id, **query)
    assert (status, body["detail"]) == (422, "invalid_request")
    assert all(problem.keys() == {"loc", "type"} for problem in body["errors"])


async def test_other_conversations(site: Site, operators: Database) -> None:
    """Edge case 36: any id but the token's is the same 403, whether it exists or not."""
    own = site.conversation_id
    other = await make_site(site.live, operators)
    await other.send("secret")
    await site.open()
    answers = [
        await get(site, conversation_id)
        for conversation_id in (own, other.conversation_id, str(uuid_utils.uuid7()), "nonsense")
    ]
    for status, body in answers:
        body.pop("request_id")
        assert (status, body) == (403, answers[0][1])
        assert body["detail"] == "conversation_mismatch"


async def test_each_sees_its_own(site: Site, operators: Database) -> None:
    """Edge case 36: two tenants and two conversations of one never see each other's messages."""
    other = await make_site(site.live, operators)
    first = dict(site.session)
    await site.send("one")
    await other.send("two")
    await site.open()
    await site.send("three")
    assert [m["content"] for m in (await site.history())["messages"]] == ["three"]
    assert [m["content"] for m in (await other.history())["messages"]] == ["two"]
    site.session = first
    assert [m["content"] for m in (await site.history())["messages"]] == ["one"]


async def test_disabled_tenant(site: Site, operators: Database) -> None:
    """Edge case 40: a disabled tenant's conversations cannot be read any more."""
    await site.send("hi")
    await operators.execute("update tenants set is_active = false where slug = $1", site.slug)
    status, body = await get(site, site.conversation_id)
    assert (status, body["detail"]) == (403, "tenant_inactive")
