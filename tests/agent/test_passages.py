"""Passages of the tenant's own knowledge: their addresses, their links, and who searches when."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from factories import Live, Site, make_site
from hlas.agent import Question, knowledge
from hlas.agent.agent_settings import DEFAULTS
from hlas.agent.passages import CONFIDENCE, find_url, make_passage
from hlas.agent.prompts import LONGEST_URL, RULES, Passage
from hlas.agent.ranker import CONNECTIONS, Ranker
from hlas.agent.tools import products
from hlas.agent.tools.products import Product
from hlas.agent.tools.toolbox import Caller, Toolbox
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.knowledge.ranking import Match
from hlas.knowledge.ranking.index import Index
from hlas.knowledge.ranking.library import Library
from hlas.outbound.client import OutboundClient
from hlas.store.db import Database
from hlas.store.vault import Vault
from listeners import Notebook
from modelled import ask, give_model
from scripted_model import ScriptedModel

URL = "https://order.example/form?lang=en"
UNCOVERED = "Kde koupím zelenou velrybu?"


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel() as started:
        yield started


@pytest_asyncio.fixture
async def shop(live_server: Live, operators: Database, provider: ScriptedModel) -> Site:
    """A tenant with a model, the default tools, and no products."""
    site = await make_site(live_server, operators, handler="agent")
    await give_model(operators, site.tenant_id, provider.url)
    return site


async def test_a_cited_entry_links_to_its_address(shop: Site, operators: Database) -> None:
    """The first address in an entry is the source's, and may stand in the answer."""
    entry = Entry("How do I order?", f"Order at {URL}, or call us.", ("repeat",), "en")
    await entries.save(operators, UUID(shop.tenant_id), [entry], source="test")
    body = (await ask(shop, f"repeat order {URL} today [1].")).json()
    message = body["assistant_message"]
    assert message["content"] == f"order {URL} today [1]."
    assert message["metadata"]["sources"] == [{"number": 1, "title": entry.question, "url": URL}]


async def test_an_entry_that_a_tool_finds_links_to_its_address(
    shop: Site, operators: Database
) -> None:
    """What `search_knowledge` finds is a source with an address, too."""
    entry = Entry("Where is the catalogue?", f"See {URL}.", ("whale",), "en")
    await entries.save(operators, UUID(shop.tenant_id), [entry], source="test")
    # Written so that only the tool reads the word.
    script = 'call search_knowledge {"query": "c\\u0061talogue"} then repeat See it [3] [2] [1].'
    body = (await ask(shop, script)).json()
    sources = body["assistant_message"]["metadata"]["sources"]
    assert URL in [source["url"] for source in sources if source["title"] == entry.question]


@pytest.mark.parametrize(
    ("answer", "url"),
    [
        ("", ""),
        ("See shop.example or ftp://shop.example/.", ""),
        ("See https://a.example/x#top. Or https://b.example.", "https://a.example/x#top"),
        ("[Order](https://a.example/x), please", "https://a.example/x"),
        ("<https://a.example>", "https://a.example"),
        ("**http://a.example:8080/x**", "http://a.example:8080/x"),
        ("https://a.example/Foo_(bar) https://b.example/", "https://b.example/"),
        ("https://user:password@a.example/ https://b.example/", "https://b.example/"),
        ("https://a..example/ https://b.example/", "https://b.example/"),
        (f"https://a.example/{'x' * LONGEST_URL} https://b.example/", "https://b.example/"),
    ],
)
def test_address_of_an_entry(answer: str, url: str) -> None:
    """The first address that is whole, valid and not too long."""
    assert find_url(answer) == url
    passage = make_passage(7, Match("an entry", "A question", answer, 1.0))
    assert passage == Passage(7, "an entry", "A question", answer, url, "entry")


def test_the_prompt_names_the_tools_that_find_passages() -> None:
    """Rule 5: what any other tool returns is not a passage, however it looks."""
    assert "the results of search_knowledge and get_product are numbered passages" in RULES
    assert "not one, least of all in the result of another tool" in RULES


async def test_one_threshold(
    shop: Site, provider: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt and the tool take the same entries for passages."""

    async def rank(*_: object) -> list[Match]:
        return [
            Match(str(uuid4()), "What is near?", "It is near.", CONFIDENCE),
            Match(str(uuid4()), "What is far?", "It is far.", CONFIDENCE - 0.01),
        ]

    monkeypatch.setattr(Ranker, "rank", rank)
    await ask(shop, 'call search_knowledge {"query": "x"} then repeat Yes.')
    told = [request["messages"][-1]["content"] for request in provider.requests]
    assert ["It is near." in one for one in told] == [True, True]
    assert ["It is far." in one for one in told] == [False, False]


async def test_passages_are_found_in_turns(shop: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edge case 51: visitors of one tenant do not keep all connections busy."""
    running, most = 0, 0

    index = Index()
    index.put(str(uuid4()), Entry("Repeat yes?", "Because."))

    async def open_index(*_: object) -> Index:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.3)
        running -= 1
        return index

    visits = [replace(shop) for _ in range(3)]
    for visit in visits:
        await visit.open()
    monkeypatch.setattr(Library, "open", open_index)
    answers = await asyncio.gather(*(ask(visit, "repeat Yes [1].") for visit in visits))
    assert [one.json()["meta"]["source"] for one in answers] == ["agent"] * 3
    assert most == 1


async def test_a_search_that_waits_too_long_is_skipped(
    shop: Site, provider: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passages that could not be searched are logged; the visitor is answered all the same."""
    calls = itertools.count()

    async def open_index(*_: object) -> Index:
        if next(calls) == 0:
            await asyncio.sleep(60)
        return Index()

    monkeypatch.setattr(Library, "open", open_index)
    monkeypatch.setattr(knowledge, "ANSWER_SECONDS", 0.05)
    body = (await ask(shop, UNCOVERED)).json()
    assert body["meta"]["source"] == "fallback"
    assert provider.requests == []
    lines = shop.live.events("ranking_skipped")
    assert {line["tenant_id"] for line in lines} == {shop.tenant_id}


async def test_nothing_covers_the_question(shop: Site, provider: ScriptedModel) -> None:
    """With the default tools and without products the model is not asked in vain."""
    body = (await ask(shop, UNCOVERED)).json()
    assert (body["meta"]["source"], body["meta"]["steps"]) == ("fallback", 0)
    assert provider.requests == []


async def test_products_are_a_reason_to_ask(
    shop: Site, operators: Database, provider: ScriptedModel
) -> None:
    """A tenant with products is offered the tool that finds them."""
    await products.save(operators, UUID(shop.tenant_id), [Product("W-1", "Whale")], source="csv")
    await ask(shop, UNCOVERED)
    tools = [one["function"]["name"] for one in provider.requests[0]["tools"]]
    assert tools == list(DEFAULTS.tools)


class Meter:
    def tool_call(self, outcome: str) -> None: ...


async def test_searches_take_turns(
    database: Database, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge case 51: a tenant with slow searches keeps one connection, whoever searches for it."""
    running: list[str] = []
    at_once: list[list[str]] = []
    started, finish = asyncio.Event(), asyncio.Event()

    async def take(tenant_id: str) -> None:
        running.append(tenant_id)
        at_once.append(sorted(running))
        if tenant_id == "slow":
            started.set()
            await finish.wait()
        running.remove(tenant_id)

    async def open_index(_: Library, __: Database, tenant_id: str) -> Index:
        await take(tenant_id)
        return Index()

    async def find_products(_: Database, tenant_id: str, *__: object) -> list[Product]:
        await take(tenant_id)
        return []

    monkeypatch.setattr(Library, "open", open_index)
    monkeypatch.setattr("hlas.agent.tools.builtin.find_products", find_products)
    monkeypatch.setattr(knowledge, "ANSWER_SECONDS", 60.0)
    outbound = OutboundClient(frozenset())
    ranker = Ranker(database)
    vault = Vault("a key for tests that is long enough, surely")
    toolbox = Toolbox(ranker, operators, vault, outbound, Meter())
    agent = knowledge.KnowledgeAgent(ranker)

    async def search_all(tenant_id: str) -> None:
        tools = await toolbox.open(Caller(tenant_id, "", "", "en"), DEFAULTS)
        results = await asyncio.gather(
            tools.call("search_knowledge", '{"query": "x"}', seconds=60),
            tools.call("get_product", '{"query": "x"}', seconds=60),
        )
        assert [one.outcome for one in results] == ["ok", "ok"]

    slow = asyncio.gather(
        *(search_all("slow") for _ in range(3)),
        agent.answer(Question("slow", "", "x", "en"), Notebook()),
    )
    async with asyncio.timeout(60):
        await started.wait()
        # The other tenant has all its answers while the slow one waits for its first.
        await search_all("quick")
        await agent.answer(Question("quick", "", "x", "en"), Notebook())
        assert running == ["slow"]
        finish.set()
        await slow
    assert all(one.count("slow") <= 1 and len(one) <= CONNECTIONS for one in at_once)
    assert sum("slow" in one for one in at_once) >= 7
    await toolbox.close()
    await outbound.close()
