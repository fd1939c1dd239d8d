"""A visitor's and an operator's way with a language model, and what the provider was asked for.

The model says its words when the test lets it, so nothing here depends on the machine's speed. Its
last word so far is not shown, as it could be the beginning of a link.
"""

import asyncio
import io
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Locator, expect

from e2e.console import Desk
from e2e.proxy import open_proxy
from e2e.shop import Shop
from e2e.visitor import Visitor, no_problems
from e2e.website import open_website
from factories import Live, Site
from hlas.agent.money import budgets
from hlas.agent.tools.builtin import Arguments, SearchKnowledgeTool
from hlas.agent.tools.calls import ToolResult
from hlas.agent.tools.mcp import servers
from hlas.outbound.client import OutboundClient
from hlas.store.db import Database
from hlas.store.vault import Vault
from hlas.tenants import tenants
from mcp_scripts import ScriptedServer, serve
from model_scripts import Await, Call, Refuse, Say, Step, Usage
from modelled import give_model
from processes import UNLIMITED, Served, serve_process
from scripted_model import ScriptedModel

QUESTION, ANSWER = "What does delivery cost?", "Delivery costs 99 crowns."
# The most that can be set.
SECONDS = 60
BOOK = {
    "name": "book",
    "title": "Book a delivery",
    "description": "Books a delivery.",
    "inputSchema": {"type": "object", "properties": {"day": {"type": "string"}}},
}


class Director(ScriptedModel):
    """A provider whose next answers the test names; a request too many is counted and refused."""

    def __init__(self) -> None:
        super().__init__(lambda _: self._answers.pop(0) if self._answers else [Refuse(500)])
        self._answers: list[list[Step]] = []

    def plan(self, *answers: list[Step]) -> None:
        assert not self._answers, "an answer that was planned was not asked for"
        self._answers += answers


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[Director]:
    async with Director() as started:
        yield started


@pytest_asyncio.fixture
async def crm(shop: Shop, provider: Director) -> AsyncIterator[ScriptedServer]:
    """The shop's agent has a model, two tools, and must ask before one of them."""
    outbound = OutboundClient(frozenset({"127.0.0.1"}))
    async with serve(ScriptedServer(tools=[BOOK])) as server:
        tenant_id = UUID(shop.site.tenant_id)
        await servers.add_address(
            shop.operators, Vault(""), outbound, tenant_id, "crm", server.url, {}
        )
        await give_model(
            shop.operators,
            shop.site.tenant_id,
            provider.url,
            tools=["search_knowledge", "crm__book"],
            acting_tools=["crm__book"],
        )
        yield server
    await outbound.close()


def answer(visitor: Visitor) -> Locator:
    return visitor.page.locator("hlas-chat .assistant:not(.typing) > .bubble").last


def label(visitor: Visitor) -> Locator:
    return visitor.page.locator("hlas-chat .typing > .bubble")


def press(visitor: Visitor | Desk, name: str) -> Locator:
    return visitor.page.get_by_role("button", name=name, exact=True)


def hold_search(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Searches wait for the event."""
    event, search = asyncio.Event(), SearchKnowledgeTool.answer

    async def wait(tool: SearchKnowledgeTool, arguments: Arguments) -> ToolResult:
        await event.wait()
        return await search(tool, arguments)

    monkeypatch.setattr(SearchKnowledgeTool, "answer", wait)
    return event


async def be_answered(visitor: Visitor, provider: Director) -> None:
    """The text grows while the model speaks; its source stands below the whole answer."""
    go = asyncio.Event()
    provider.plan([Say("Delivery costs 99 "), Await(go), Say("crowns [1].")])
    await visitor.write(QUESTION)
    await expect(answer(visitor)).to_have_text("Delivery costs")
    await expect(answer(visitor).locator(".sources")).to_have_count(0)
    go.set()
    await visitor.settled()
    await expect(answer(visitor).locator("p")).to_have_text("Delivery costs 99 crowns1.")
    await expect(answer(visitor).locator(".sources li")).to_have_text([f"1{QUESTION}"])
    assert len(provider.requests) == 1


async def use_tool(visitor: Visitor, provider: Director, search: asyncio.Event) -> None:
    """The visitor sees what the agent waits for; the model gets what was found."""
    provider.plan([Call("search_knowledge", '{"query": "open"}')], [Say("From 9 to 17.")])
    await visitor.write("When are you open?")
    await expect(label(visitor)).to_have_text("Searching…")
    search.set()
    await visitor.settled()
    await expect(answer(visitor)).to_have_text("From 9 to 17.")
    assert len(provider.requests) == 3
    assert "When are you open?" in provider.requests[-1]["messages"][-1]["content"]


async def decide(
    visitor: Visitor, provider: Director, crm: ScriptedServer, name: str, said: str
) -> None:
    """The tool is called after the visitor has confirmed it, once; the model hears of both."""
    calls, requests = crm.methods.count("tools/call"), len(provider.requests)
    provider.plan([Call("crm__book", '{"day": "Monday"}')])
    await visitor.write("Please book a delivery.")
    await expect(visitor.page.get_by_role("group", name="Book a delivery")).to_contain_text(
        "Monday"
    )
    await visitor.settled()
    assert (crm.methods.count("tools/call"), len(provider.requests)) == (calls, requests + 1)
    provider.plan([Say(said)])
    await press(visitor, name).click()
    await expect(answer(visitor)).to_have_text(said)
    await visitor.settled()
    made = crm.methods.count("tools/call") - calls
    assert (made, len(provider.requests)) == (int(name == "Confirm"), requests + 2)
    assert provider.requests[-1]["messages"][-1]["role"] == "tool"


async def stop(visitor: Visitor, provider: Director) -> None:
    """What was said stays, after a reload, too; the provider's connection is closed."""
    requests = len(provider.requests)
    provider.plan([Say("It depends on this"), Await(asyncio.Event())])
    await visitor.write(QUESTION)
    await expect(answer(visitor)).to_have_text("It depends on")
    assert provider.left == 0
    await press(visitor, "Stop").click()
    await provider.until(lambda: provider.left == 1)
    await visitor.settled()
    await visitor.page.reload()
    await expect(answer(visitor)).to_have_text("It depends on")
    assert len(provider.requests) == requests + 1


async def reload(visitor: Visitor, provider: Director) -> None:
    """The text goes on where it was, exact and once."""
    go, requests = asyncio.Event(), len(provider.requests)
    provider.plan([Say("One two three"), Await(go), Say(" four.")])
    await visitor.write(QUESTION)
    await expect(answer(visitor)).to_have_text("One two")
    rows = await visitor.rows("assistant").count()
    await visitor.page.reload()
    await expect(answer(visitor)).to_have_text("One two")
    go.set()
    await expect(answer(visitor)).to_have_text("One two three four.")
    await visitor.settled()
    await expect(visitor.rows("assistant")).to_have_count(rows)
    assert len(provider.requests) == requests + 1


async def reach_cap(visitor: Visitor, provider: Director, shop: Shop) -> None:
    """The knowledge answers; the visitor sees no error and the provider no request."""
    requests = len(provider.requests)
    row = await shop.operators.one("select sum(amount)::bigint as spent from spend")
    assert row is not None
    assert row["spent"] > 0
    await budgets.set_caps(shop.operators, shop.site.slug, {"day": row["spent"]})
    await visitor.write(QUESTION)
    await expect(answer(visitor)).to_have_text(ANSWER)
    await visitor.settled()
    await expect(visitor.page.locator("hlas-chat .failed")).to_have_count(0)
    assert len(provider.requests) == requests


@pytest.mark.settings(agent_timeout_seconds=SECONDS, outbound_private_hosts="127.0.0.1")
async def test_a_visitor(
    context: BrowserContext,
    shop: Shop,
    provider: Director,
    crm: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sources, a tool, consent, a stop, a reload and the cap, in one conversation."""
    search = hold_search(monkeypatch)
    visitor = await shop.arrive(context)
    await visitor.open()
    await be_answered(visitor, provider)
    await use_tool(visitor, provider, search)
    await decide(visitor, provider, crm, "Confirm", "It is booked.")
    await decide(visitor, provider, crm, "Cancel", "I have not booked it.")
    await stop(visitor, provider)
    await reload(visitor, provider)
    await reach_cap(visitor, provider, shop)
    [booked] = [one["params"] for one in crm.asked if one.get("method") == "tools/call"]
    assert (booked["name"], booked["arguments"]) == ("book", {"day": "Monday"})
    row = await shop.operators.one("select sum(requests)::int as paid from spend")
    assert row is not None
    assert (row["paid"], len(provider.requests), provider.left) == (9, 9, 1)
    no_problems(visitor)


@asynccontextmanager
async def serve_shop(first: Served, operators: Database, provider: Director) -> AsyncIterator[Shop]:
    async with open_website() as website:
        made = await tenants.add(operators, "Shop", "shop", [website.origin])
        await give_model(operators, str(made.id), provider.url)
        live = Live(first.url, None, io.BytesIO(), first.client)
        yield Shop(website, Site(live, made.slug, str(made.id), website.origin), live, operators)


async def test_a_worker_is_killed(
    context: BrowserContext, database_url: str, operators: Database, provider: Director
) -> None:
    """Edge case 56: words without an end give way to the knowledge's answer; nobody pays twice."""
    variables: dict[str, Any] = {**UNLIMITED, "AGENT_TIMEOUT_SECONDS": str(SECONDS)}
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(serve_process(database_url, **variables))
            for _ in range(2)
        ]
        shop = await stack.enter_async_context(serve_shop(first, operators, provider))
        proxy = await stack.enter_async_context(open_proxy(first.url))
        visitor = await Visitor.arrive(context, shop.page(api=proxy.url))
        await visitor.open()
        provider.plan([Say("It may well be so"), Await(asyncio.Event())])
        await visitor.write(QUESTION)
        await expect(answer(visitor)).to_have_text("It may well be")
        await first.stop(signal.SIGKILL)
        proxy.upstream = second.url
        await expect(answer(visitor)).to_have_text(ANSWER, timeout=60_000)
        await visitor.settled()
        for _ in range(2):
            await expect(visitor.rows("user")).to_have_text([QUESTION])
            await expect(visitor.rows("assistant").filter(has_text="well be")).to_have_count(0)
            await visitor.page.reload()
            await expect(answer(visitor)).to_have_text(ANSWER)
        assert await shop.messages() == [QUESTION, ANSWER]
        assert (len(provider.requests), provider.left) == (1, 1)
        no_problems(visitor)


@pytest.mark.settings(agent_timeout_seconds=SECONDS)
async def test_an_operator(context: BrowserContext, shop: Shop, provider: Director) -> None:
    """Test a model, try the agent, see what it cost: each request of the provider is on a page."""
    await give_model(
        shop.operators, shop.site.tenant_id, provider.url, price=10**10, tools=["search_knowledge"]
    )
    desk = await Desk.open(context, shop.live, shop.operators)
    page = desk.page
    await page.get_by_role("link", name="Models", exact=True).click()
    await page.locator("main .rows a").click()
    provider.plan([Say("yes"), Usage("9/1")])
    await press(desk, "Send a test request").click()
    await expect(page.get_by_role("status")).to_have_text("It works.")
    await expect(page.locator("main")).to_contain_text("9 in, 1 out")
    await desk.go(f"/tenants/{shop.site.slug}/agent")
    provider.plan(
        [Call("search_knowledge", '{"query": "open"}'), Usage("1000/20")],
        [Say("It costs <99> crowns [1]."), Usage("1500/30")],
    )
    await page.get_by_label("A visitor asks").fill(QUESTION)
    await press(desk, "Ask").click()
    trial = page.get_by_role("region", name="The answer")
    await expect(trial.get_by_role("status")).to_have_text("It costs <99> crowns [1].")
    await expect(trial).to_contain_text("2\u202f500 in, 50 out")
    # 2 550 tokens at ten dollars for a million.
    await expect(trial).to_contain_text("$0.0255")
    for name, inside in (
        ("Passages (2)", ANSWER),
        ("Steps (3)", "tool: ok"),
        ("Prompt (4 messages)", "system"),
    ):
        await trial.get_by_text(name, exact=True).click()
        opened = trial.locator("details").filter(has_text=name)
        await expect(opened.get_by_text(inside, exact=True).first).to_be_visible()
    assert await desk.violations() == []
    await page.get_by_role("link", name="Spend", exact=True).click()
    row = page.get_by_role("region", name="Spend by model").locator("tbody tr")
    await expect(row.locator("td")).to_have_text(["$0.0255", "2", "2\u202f500", "50"])
    assert (len(provider.requests), provider.left) == (3, 0)
    assert desk.problems == []
