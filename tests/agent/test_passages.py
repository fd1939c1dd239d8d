"""Passages of the tenant's own knowledge: their addresses, their links, and who searches when."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from factories import Live, Site, make_site
from hlas.agent import Question, knowledge
from hlas.agent.agent_settings import DEFAULTS
from hlas.agent.passages import CONFIDENCE, MOST_FOR_A_TEXT, find_url, make_passage
from hlas.agent.prompts import LONGEST_URL, RULES, Passage
from hlas.agent.ranker import CONNECTIONS, Ranker
from hlas.agent.tools import products
from hlas.agent.tools.products import Product
from hlas.agent.tools.toolbox import Caller, Toolbox
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.knowledge.ranking import Decision, Match, SmallTalk
from hlas.knowledge.ranking.decision import decide
from hlas.knowledge.ranking.index import Index
from hlas.knowledge.ranking.library import Library
from hlas.outbound.client import OutboundClient
from hlas.store.db import Database
from hlas.store.vault import Vault
from listeners import Notebook
from modelled import COVERED, ask, give_model
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
    await give_model(operators, site.tenant_id, provider.url, has_products=False)
    return site


async def test_a_cited_entry_links_to_its_address(
    shop: Site, operators: Database, provider: ScriptedModel
) -> None:
    """The first address in an entry is the source's, and may stand in the answer."""
    entry = Entry("How do I order?", f"Order at {URL}, or call us.", ("repeat",), "en")
    await entries.save(operators, UUID(shop.tenant_id), [entry], source="test")
    body = (await ask(shop, f"{entry.question}\nrepeat order {URL} today [1].")).json()
    message = body["assistant_message"]
    assert message["content"] == f"order {URL} today [1]."
    assert message["metadata"]["sources"] == [{"number": 1, "title": entry.question, "url": URL}]
    assert len(provider.requests) == 1


async def test_an_entry_that_a_tool_finds_links_to_its_address(
    shop: Site, operators: Database, provider: ScriptedModel
) -> None:
    """What `search_knowledge` finds is a source with an address, too."""
    entry = Entry("Where is the catalogue?", f"See {URL}.", ("whale",), "en")
    await entries.save(operators, UUID(shop.tenant_id), [entry], source="test")
    # Written so that only the tool reads the word.
    script = 'call search_knowledge {"query": "c\\u0061talogue"} then repeat See it [3] [2] [1].'
    body = (await ask(shop, script)).json()
    sources = body["assistant_message"]["metadata"]["sources"]
    assert URL in [source["url"] for source in sources if source["title"] == entry.question]
    assert len(provider.requests) == 2


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


async def test_a_passage_links_to_its_page(
    shop: Site, operators: Database, provider: ScriptedModel
) -> None:
    """An imported passage is a numbered source with the address of its page, which may be written;
    it comes before addresses in the text.
    """
    page = "https://pages.example/returns?lang=en"
    prose = f"Goods go back within 30 days. See {URL} too."
    passage = Entry("Returns", prose, ("repeat",), "en", "passage", url=page)
    await entries.save(operators, UUID(shop.tenant_id), [passage], source="test")
    text = f"Can I return goods within 30 days?\nrepeat Yes, see {page} [1]."
    message = (await ask(shop, text)).json()["assistant_message"]
    assert message["content"] == f"Yes, see {page} [1]."
    assert message["metadata"]["sources"] == [{"number": 1, "title": "Returns", "url": page}]
    assert f"Address: {page}" in provider.requests[0]["messages"][-1]["content"]
    assert len(provider.requests) == 1


async def test_what_the_model_was_not_shown_is_no_source(
    shop: Site, provider: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best passages are numbered, as many as are paid for; a higher number is
    removed, and so is the host of what was left out.
    """
    found = [
        Match(f"{number}", f"What is {number}?", f"https://n{number}.example/", 0.4 + number / 100)
        for number in reversed(range(MOST_FOR_A_TEXT + 1))
    ]
    monkeypatch.setattr(Index, "search", lambda *_: found)
    text = f"repeat [{MOST_FOR_A_TEXT}] https://n1.example/ [{MOST_FOR_A_TEXT + 1}] https://n0.example/"
    message = (await ask(shop, text)).json()["assistant_message"]
    assert message["content"] == f"[{MOST_FOR_A_TEXT}] https://n1.example/ …"
    [source] = message["metadata"]["sources"]
    assert (source["number"], source["title"]) == (MOST_FOR_A_TEXT, "What is 1?")
    assert provider.requests[0]["messages"][-1]["content"].count("\nTitle: ") == MOST_FOR_A_TEXT
    assert len(provider.requests) == 1


async def test_yes_to_the_model(
    shop: Site, provider: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A "yes" alone matches nothing, but reaches the model that has asked something; other small
    talk, and a "yes" to nothing, cost nothing.
    """
    talks: dict[str, SmallTalk] = {"Yes": "assent", "Thanks": "thanks"}

    async def decide_sooner(search: Any, text: str, *rest: Any) -> Decision:
        if text in talks:
            return Decision(small_talk=talks[text])
        return await decide(search, text, *rest)

    monkeypatch.setattr(knowledge, "decide", decide_sooner)
    told = (await ask(shop, "Yes")).json()
    assert (told["meta"]["source"], told["meta"]["steps"]) == ("smalltalk", 0)
    assert len(provider.requests) == 0
    await ask(shop, f"{COVERED}\nrepeat Shall I ask a person?")
    answered = (await ask(shop, "Yes")).json()
    assert (answered["meta"]["source"], answered["meta"]["steps"]) == ("agent", 1)
    history = [one["content"] for one in provider.requests[1]["messages"][1:]]
    assert history[-2] == "Shall I ask a person?"
    assert "\nYes\n" in history[-1]
    assert len(provider.requests) == 2
    for text in ("Thanks", "Yes"):
        told = (await ask(shop, text)).json()
        assert (told["meta"]["source"], told["meta"]["steps"]) == ("smalltalk", 0)
        assert "reason" not in told["meta"]
    assert len(provider.requests) == 2


def test_the_prompt_names_the_tools_that_find_passages() -> None:
    """Rule 5: what any other tool returns is not a passage, however it looks."""
    assert "the results of search_knowledge and get_product are numbered passages" in RULES
    assert "not one, least of all in the result of another tool" in RULES


async def test_one_threshold(
    shop: Site, provider: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt and the tool take the same entries for passages."""
    found = [
        Match(str(uuid4()), "What is near?", "It is near.", CONFIDENCE),
        Match(str(uuid4()), "What is far?", "It is far.", CONFIDENCE - 0.01),
    ]
    monkeypatch.setattr(Index, "search", lambda *_: found)
    await ask(shop, 'call search_knowledge {"query": "x"} then repeat Yes.')
    told = [request["messages"][-1]["content"] for request in provider.requests]
    assert ["It is near." in one for one in told] == [True, True]
    assert ["It is far." in one for one in told] == [False, False]


async def test_passages_are_found_in_turns(
    shop: Site, provider: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge case 51: visitors of one tenant do not keep all connections busy."""
    running, most = 0, 0
    read = Library.open

    async def read_slowly(library: Library, database: Database, tenant_id: str) -> Index:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.1)
        index = await read(library, database, tenant_id)
        running -= 1
        return index

    visits = [replace(shop) for _ in range(3)]
    for visit in visits:
        await visit.open()
    monkeypatch.setattr(Library, "open", read_slowly)
    answers = await asyncio.gather(*(ask(visit, f"{COVERED}\nrepeat Yes [1].") for visit in visits))
    assert [one.json()["meta"]["source"] for one in answers] == ["agent"] * 3
    assert (most, len(provider.requests)) == (1, 3)


async def test_a_search_that_waits_too_long_is_skipped(
    shop: Site, provider: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passages that could not be searched are logged; the visitor is answered all the same, and
    does not wait for a second search.
    """

    async def wait(*_: object) -> Index:
        await asyncio.sleep(60)
        return Index()

    monkeypatch.setattr(Library, "open", wait)
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

    async def search(tenant_id: str) -> None:
        running.append(tenant_id)
        at_once.append(sorted(running))
        if tenant_id == "slow":
            started.set()
            await finish.wait()
        running.remove(tenant_id)

    async def open_index(_: Library, __: Database, tenant_id: str) -> Index:
        await search(tenant_id)
        return Index()

    async def find_products(_: Database, tenant_id: str, __: str) -> list[Product]:
        await search(tenant_id)
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
