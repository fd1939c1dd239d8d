"""Tools as a model calls them: arguments, limits, tenants, and what is logged."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest
import pytest_asyncio

import log_scan
from archives import fill
from hlas import log
from hlas.agent.agent_settings import AgentSettings
from hlas.agent.prompts import Passage
from hlas.agent.ranker import Ranker
from hlas.agent.tools import builtin as builtin_tools
from hlas.agent.tools import products
from hlas.agent.tools.calls import LARGEST_RESULT, cut
from hlas.agent.tools.mcp import servers
from hlas.agent.tools.products import Product
from hlas.agent.tools.tool_names import make_name
from hlas.agent.tools.toolbox import Caller, Toolbox, Tools
from hlas.demo import tenant as demo
from hlas.errors import Unavailable
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.knowledge.ranking.library import Library
from hlas.outbound.client import OutboundClient
from hlas.store.db import Database
from hlas.store.logins import Logins
from hlas.store.vault import Vault
from hlas.tenants import tenants
from mcp_scripts import TOOL, ScriptedServer, serve

BUILTIN = ("search_knowledge", "get_product", "hand_over")
VAULT = Vault("a key for tests that is long enough, surely")


def make_agent_settings(*tools: str, acting: tuple[str, ...] = ()) -> AgentSettings:
    return AgentSettings(
        models=(),
        instructions="",
        tools=tools,
        acting_tools=acting,
        link_hosts=(),
        max_steps=None,
        is_debug=False,
    )


@dataclass
class Meter:
    outcomes: list[str] = field(default_factory=list)

    def tool_call(self, outcome: str) -> None:
        self.outcomes.append(outcome)


@dataclass
class Shop:
    """A tenant and its tools."""

    tenant_id: UUID
    toolbox: Toolbox
    operators: Database
    outbound: OutboundClient
    meter: Meter
    asked: list[tuple[Caller, str]]
    conversation_id: str = field(default_factory=lambda: str(uuid4()))

    async def open(
        self, *tools: str, acting: tuple[str, ...] = (), is_trial: bool = False, **options: Any
    ) -> Tools:
        ids = (str(self.tenant_id), self.conversation_id, str(uuid4()))
        caller = Caller(*ids, "en", is_trial=is_trial)
        chosen = make_agent_settings(*tools, acting=acting)
        return await self.toolbox.open(caller, chosen, **options)

    async def add(self, server: ScriptedServer, name: str = "crm", **headers: str) -> None:
        await servers.add_address(
            self.operators, VAULT, self.outbound, self.tenant_id, name, server.url, headers
        )


MakeShop = Callable[..., Any]


@pytest_asyncio.fixture
async def make_shop(database: Database, operators: Database) -> AsyncIterator[MakeShop]:
    opened: list[Shop] = []

    async def make(slug: str = "shop", *hosts: str) -> Shop:
        tenant_id = (await tenants.add(operators, slug, slug, [])).id
        outbound, meter = OutboundClient(frozenset(hosts or {"127.0.0.1"})), Meter()
        asked: list[tuple[Caller, str]] = []

        async def notify(caller: Caller, reason: str) -> None:
            asked.append((caller, reason))

        toolbox = Toolbox(Ranker(database), operators, VAULT, outbound, meter, notify)
        opened.append(Shop(tenant_id, toolbox, operators, outbound, meter, asked))
        return opened[-1]

    yield make
    for shop in opened:
        await shop.toolbox.close()
        await shop.outbound.close()


@pytest_asyncio.fixture
async def shop(make_shop: MakeShop, operators: Database) -> Shop:
    made: Shop = await make_shop()
    known = [
        Entry("Where can I find my invoice?", "In the portal.", ("bill",), "en"),
        Entry("When are you open?", "From 9 to 17. " + "ž" * 5000, (), "en"),
    ]
    await entries.save(operators, made.tenant_id, known, source="faq")
    url = "https://shop.example/kettle"
    await products.save(
        operators,
        made.tenant_id,
        [Product("K-1", "Kettle", "Boils water.", "CZK 500", url, {"colour": "red"})],
        source="csv",
    )
    return made


async def call(tools: Tools, name: str, arguments: Any = "{}", seconds: float = 20) -> Any:
    given = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return await tools.call(name, given, seconds=seconds)


async def test_definitions(shop: Shop) -> None:
    """A model sees the tools that the settings allow, and no argument that names a tenant."""
    assert (await shop.open()).definitions() == []
    (only,) = (await shop.open("get_product", "nonsense", "no__such")).definitions()
    assert only == {
        "type": "function",
        "function": {
            "name": "get_product",
            "description": builtin_tools.GetProductTool.description,
            "parameters": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "query": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 300,
                        "description": "A product's name or number, or words that describe it",
                    }
                },
                "required": ["query"],
            },
        },
    }
    tools = await shop.open(*BUILTIN)
    assert [one["function"]["name"] for one in tools.definitions()] == list(BUILTIN)  # type: ignore[index]
    assert [tools.describe(name) for name in (*BUILTIN, "none")] == [
        "Searching the answers",
        "Searching the products",
        "Asking for a person",
        "",
    ]


async def test_search(shop: Shop) -> None:
    """Found entries are passages, numbered after those supplied; found again, they keep theirs."""
    stored = await entries.list_entries(shop.operators, shop.tenant_id)
    known = Passage(4, "elsewhere", "t", "x", "")
    tools = await shop.open(*BUILTIN, supplied=[known])
    result = await call(tools, "search_knowledge", {"query": "where is my bill"})
    assert result.outcome == "ok"
    assert result.passages[0] == Passage(
        5, str(stored[0].id), "Where can I find my invoice?", "In the portal.", ""
    )
    assert result.text.startswith("[5] Where can I find my invoice?\nIn the portal.")
    hours = await call(tools, "search_knowledge", {"query": "opening hours, when are you open"})
    assert hours.passages[0].number == 6
    assert len(hours.passages[0].text.encode()) <= builtin_tools.LARGEST_PASSAGE
    assert hours.passages[0].text.endswith("[cut: the rest is left out]")
    again = await call(tools, "search_knowledge", {"query": "my invoice"})
    assert again.passages[0].number == 5
    nothing = await call(tools, "search_knowledge", {"query": "xyzzy"})
    assert (nothing.outcome, nothing.passages) == ("ok", ())
    assert nothing.text == builtin_tools.NOTHING_FOUND


async def test_product(shop: Shop) -> None:
    """A product is a passage with its price and address, which the answer may cite."""
    tools = await shop.open(*BUILTIN)
    result = await call(tools, "get_product", {"query": "red kettle"})
    text = "sku: K-1\nprice: CZK 500\ncolour: red\nBoils water."
    assert result.passages == (
        Passage(1, "product:K-1", "Kettle", text, "https://shop.example/kettle", "product"),
    )
    assert result.text == f"[1] Kettle\n{text}"
    assert (await call(tools, "get_product", {"query": "piano"})).passages == ()


async def test_tenants(shop: Shop, make_shop: MakeShop, operators: Database) -> None:
    """Edge cases 65 and 66: a tool finds its own tenant's rows only, whatever the arguments say."""
    other: Shop = await make_shop("other")
    secret = Entry("What is the secret?", "Abracadabra.", ("invoice", "kettle"), "en")
    await entries.save(operators, other.tenant_id, [secret], source="faq")
    await products.save(
        operators, other.tenant_id, [Product("K-1", "Kettle of others")], source="csv"
    )
    tools = await shop.open(*BUILTIN)
    for name in ("search_knowledge", "get_product"):
        for query in ("the secret", "kettle", "K-1", str(other.tenant_id)):
            result = await call(tools, name, {"query": query})
            assert "Abracadabra" not in result.text
            assert "others" not in result.text
        for extra in ("tenant_id", "tenant", "conversation_id"):
            given = {"query": "kettle", extra: str(other.tenant_id)}
            refused = await call(tools, name, given)
            assert refused.outcome == "invalid"
            assert extra in refused.text
            assert str(other.tenant_id) not in refused.text


@pytest.mark.parametrize(
    ("arguments", "outcome", "told"),
    [
        ("", "invalid", "`query`: Field required"),
        ("{}", "invalid", "`query`: Field required"),
        ('{"query": 7}', "invalid", "`query`: Input should be a valid string"),
        ('{"query": ""}', "invalid", "`query`: String should have at least 1 character"),
        ('{"query": "' + "v" * 301 + '"}', "invalid", "at most 300 characters"),
        ('{"query": "a\\u0000b"}', "invalid", "`query`: NUL"),
        ('{"query": "x", "verysecret": "value-of-it"}', "invalid", "`verysecret`: Extra inputs"),
        ('{"query": "x"', "invalid", "not a JSON object"),
        ("[1]", "invalid", "not a JSON object"),
        ("\ud800", "invalid", "not a JSON object"),
        ("[" * 5000, "invalid", "not a JSON object"),
        ('{"query": "' + "x" * 2**16 + '"}', "invalid", "longer than 64 kB"),
        ('{"query": "' + "ž" * 2**15 + '"}', "invalid", "longer than 64 kB"),
        ("x" * 1_000_000, "invalid", "longer than 64 kB"),
    ],
)
async def test_arguments(shop: Shop, arguments: str, outcome: str, told: str) -> None:
    """Edge case 65: bad, extra and huge arguments are told to the model, without their values."""
    tools = await shop.open("search_knowledge")
    result = await tools.call("search_knowledge", arguments, seconds=20)
    assert (result.outcome, told in result.text) == (outcome, True), result.text
    assert "value-of-it" not in result.text
    assert "vvv" not in result.text
    assert shop.meter.outcomes == [outcome]


async def test_unknown_tool(shop: Shop, logs: io.BytesIO) -> None:
    """Edge case 65: a tool that there is not, or is not allowed, is an answer; its name is not
    logged.
    """
    tools = await shop.open("get_product")
    for name in ("DROP TABLE secrets", "search_knowledge", "", "x" * 10_000):
        result = await call(tools, name)
        assert result.outcome == "unknown"
        assert result.text == "There is no such tool. There are: get_product."
        assert not tools.is_acting(name)
    log.flush()
    lines = [orjson.loads(line) for line in logs.getvalue().splitlines()]
    called = [line for line in lines if line["event"] == "tool_called"]
    assert {line["tool"] for line in called} == {"unknown"}
    assert shop.meter.outcomes == ["unknown"] * 4


async def test_hand_over(shop: Shop, logs: io.BytesIO) -> None:
    """Asking for a person is recorded once in an answer, without the reason, and told to others."""
    [shop.conversation_id] = await fill(shop.operators, str(shop.tenant_id), 1, 0)
    tools = await shop.open(*BUILTIN)
    log_scan.hear("the visitor is angry about Eve")
    for _ in range(3):
        result = await call(tools, "hand_over", {"reason": "the visitor is angry about Eve"})
        assert (result.outcome, result.text) == ("ok", builtin_tools.PERSON_ASKED)
    ((caller, reason),) = shop.asked
    assert (caller.conversation_id, reason) == (
        shop.conversation_id,
        "the visitor is angry about Eve",
    )
    rows = await shop.operators.all("select * from events where action like 'conversation.%'")
    ((row),) = rows
    assert (row["actor"], row["target"]) == ("agent", shop.conversation_id)
    assert (row["before"], row["after"]) == (None, None)
    [wanted] = await shop.operators.all("select person_wanted_at from conversations")
    assert wanted["person_wanted_at"]


async def test_trial(shop: Shop, logs: io.BytesIO) -> None:
    """In a trial nobody is asked for, nothing is recorded, and no acting tool is called."""
    async with serve(ScriptedServer()) as server:
        await shop.add(server)
        tools = await shop.open("crm__look", "hand_over", acting=("crm__look",), is_trial=True)
        result = await call(tools, "hand_over", {"reason": "angry"})
        assert (result.outcome, result.text) == ("ok", builtin_tools.PERSON_ASKED)
        refused = await call(tools, "crm__look", {"address": "Elm Street"})
        assert (refused.outcome, refused.text) == (
            "error",
            "This is a trial: the tool was not called.",
        )
        assert "tools/call" not in [one["method"] for one in server.asked]
    assert shop.asked == []
    rows = await shop.operators.all("select * from events where action like 'conversation.%'")
    assert rows == []


async def test_found_passages_fit(shop: Shop) -> None:
    """Whatever matches, the model is shown all of what it may cite, the best first."""
    known = [
        Entry(f"Which tariff is it, number {number}?", "ž" * 5000, ("tariff",), "en")
        for number in range(12)
    ]
    await entries.save(shop.operators, shop.tenant_id, known, source="tariffs")
    tools = await shop.open(*BUILTIN)
    result = await call(tools, "search_knowledge", {"query": "which tariff"})
    assert len(result.passages) == builtin_tools.MOST_PASSAGES
    assert len(result.text.encode()) <= LARGEST_RESULT
    assert all(f"[{one.number}] {one.title}" in result.text for one in result.passages)
    # Of each passage, and of no other.
    assert result.text.count("the rest is left out") == len(result.passages)


async def test_search_that_fails(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, logs: io.BytesIO
) -> None:
    """A search that could not be made is not one that found nothing, for the model and the log."""

    async def fail(*_: Any) -> Any:
        raise Unavailable

    monkeypatch.setattr(Library, "open", fail)
    tools = await shop.open(*BUILTIN)
    result = await call(tools, "search_knowledge", {"query": "bill"})
    assert (result.outcome, result.passages) == ("error", ())
    assert "could not find out" in result.text
    log.flush()
    assert logs.getvalue().count(b"ranking_skipped") == 1


async def test_slow_tool(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edge case 65: a tool that takes too long is stopped, and the model is told."""
    stopped = asyncio.Event()

    async def wait(*_: Any) -> Any:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    monkeypatch.setattr(Library, "open", wait)
    tools = await shop.open(*BUILTIN)
    result = await call(tools, "search_knowledge", {"query": "bill"}, seconds=0.05)
    assert result.outcome == "timeout"
    assert "within 0.05 s" in result.text
    assert stopped.is_set()


async def test_failing_tool(shop: Shop, monkeypatch: pytest.MonkeyPatch, logs: io.BytesIO) -> None:
    """A bug in a tool is an answer for the model, and a line in the log without the arguments."""

    async def fail(*_: Any) -> Any:
        raise ValueError("with the visitor's words")

    log_scan.hear("with the visitor's words")
    monkeypatch.setattr(Library, "open", fail)
    tools = await shop.open(*BUILTIN)
    result = await call(tools, "search_knowledge", {"query": "bill"})
    assert result.outcome == "error"
    assert "visitor" not in result.text
    log.flush()
    lines = [orjson.loads(line) for line in logs.getvalue().splitlines()]
    (failed,) = (line for line in lines if line["event"] == "tool_failed")
    assert (failed["tool"], failed["error"]) == ("search_knowledge", "ValueError")


async def test_log(shop: Shop, logs: io.BytesIO) -> None:
    """Every call is one line with tool, outcome and duration, and never the arguments."""
    tools = await shop.open(*BUILTIN)
    log_scan.hear("my very own question")
    await call(tools, "search_knowledge", {"query": "my very own question"})
    await call(tools, "get_product", {"my very own question": 1})
    log.flush()
    lines = [orjson.loads(line) for line in logs.getvalue().splitlines()]
    called = [line for line in lines if line["event"] == "tool_called"]
    assert [(line["tool"], line["outcome"]) for line in called] == [
        ("search_knowledge", "ok"),
        ("get_product", "invalid"),
    ]
    assert all(line["duration_ms"] >= 0 for line in called)


@pytest.mark.parametrize("size", [LARGEST_RESULT - 1, LARGEST_RESULT, LARGEST_RESULT + 1, 10**6])
@pytest.mark.parametrize("letter", ["x", "ž", "😀"])
def test_cut(size: int, letter: str) -> None:
    """A long result is cut between characters to 8 kB, and says so."""
    text = letter * (size // len(letter.encode()))
    found = cut(text)
    assert len(found.encode()) <= LARGEST_RESULT
    if len(text.encode()) <= LARGEST_RESULT:
        assert found == text
    else:
        assert found.endswith("\n[cut: the rest is left out]")
        assert len(found.encode()) > LARGEST_RESULT - 4
    assert "\ufffd" not in found


# Tools of MCP servers.


async def test_remote_tool(shop: Shop, logs: io.BytesIO) -> None:
    """A server's tool is offered under its full name, called with sealed headers, and logged."""
    log_scan.hear("Bearer of-the-tenant", "Elm Street")
    async with serve(ScriptedServer()) as server:
        await shop.add(server, Authorization="Bearer of-the-tenant")
        tools = await shop.open("crm__look", "get_product")
        names = [one["function"]["name"] for one in tools.definitions()]  # type: ignore[index]
        assert names == ["get_product", "crm__look"]
        described = tools.definitions()[1]["function"]["description"]  # type: ignore[index]
        assert described == 'A tool of the server crm, which says: "Looks."'
        result = await call(tools, "crm__look", {"place": "Elm Street"})
        assert (result.outcome, result.text) == ("ok", "seen")
        assert server.asked[-1]["params"]["arguments"] == {"place": "Elm Street"}
        assert server.headers[-1]["Authorization"] == "Bearer of-the-tenant"
        assert (await call(tools, "crm__look", "[1]")).outcome == "invalid"
        server.answer = lambda *_: {"content": [{"type": "text", "text": "x" * 100_000}]}
        large = await call(tools, "crm__look")
        assert large.text.endswith("[cut: the rest is left out]")
        assert len(large.text.encode()) <= LARGEST_RESULT
        server.answer = lambda *_: {"content": [{"type": "text", "text": "no"}], "isError": True}
        assert (await call(tools, "crm__look")).outcome == "error"
    row = await shop.operators.one("select headers from mcp_servers")
    assert row is not None
    assert b"of-the-tenant" not in row["headers"]
    log.flush()
    assert b'"tool":"crm__look"' in logs.getvalue()


async def test_server_goes_down(shop: Shop, logs: io.BytesIO) -> None:
    """Edge case 65: a server that is down, slow or redirects is an error for the model."""
    async with serve(ScriptedServer()) as server:
        await shop.add(server)
        tools = await shop.open("crm__*")

        async def hang(*_: Any) -> None:
            await asyncio.sleep(30)

        server.answer = hang
        slow = await call(tools, "crm__look", seconds=0.2)
        assert slow.outcome == "timeout"
    down = await call(tools, "crm__look")
    assert down.outcome == "error"
    assert "it does not accept connections" in down.text
    # Its tools stay known for a minute.
    assert len((await shop.open("crm__*")).definitions()) == 1


async def test_server_is_down(make_shop: MakeShop, logs: io.BytesIO) -> None:
    """Edge case 65: with a server that is down, or private, the other tools are offered."""
    shop: Shop = await make_shop("quiet")
    async with serve(ScriptedServer()) as server:
        await shop.add(server)
        url = server.url.replace("http:", "https:")
        await shop.operators.execute("update mcp_servers set url = $1", url)
        shop.outbound._private_hosts = frozenset()
        tools = await shop.open("crm__*", "get_product")
        assert len(tools.definitions()) == 1
        assert (await call(tools, "crm__look")).outcome == "unknown"
        assert server.asked == []
    log.flush()
    lines = [orjson.loads(line) for line in logs.getvalue().splitlines()]
    (failed,) = (line for line in lines if line["event"] == "mcp_failed")
    assert (failed["server"], failed["reason"]) == ("crm", "private_address")
    # It is not asked again for each answer.
    await shop.open("crm__*")
    log.flush()
    assert logs.getvalue().count(b"mcp_failed") == 1


async def test_servers_of_other_tenants(shop: Shop, make_shop: MakeShop) -> None:
    """Edge case 66: a tenant's agent reaches the servers of its own tenant only."""
    other: Shop = await make_shop("other")
    async with serve(ScriptedServer()) as server:
        await other.add(server)
        assert (await shop.open("crm__look", "crm__*")).definitions() == []
        assert len((await other.open("crm__look")).definitions()) == 1


async def test_names(shop: Shop) -> None:
    """Names are made to fit; two that become the same are not offered: which one is meant?"""
    wild = ["get order!", "send it!", "send it?", "ž" * 100, "look"]
    tools_of_server = [{**TOOL, "name": name} for name in wild]
    async with serve(ScriptedServer(tools=tools_of_server)) as server:
        await shop.add(server)
        tools = await shop.open("crm__*")
        names = [one["function"]["name"] for one in tools.definitions()]  # type: ignore[index]
        assert names == ["crm__get_order_", f"crm__{'_' * 59}", "crm__look"]
        await call(tools, "crm__get_order_")
        assert server.asked[-1]["params"]["name"] == "get order!"
    assert make_name("a", "b.c") == "a__b_c"


async def test_acting(shop: Shop) -> None:
    """What the owner marks is confirmed; of `server__*`, all that is not read-only."""
    hints: dict[str, dict[str, bool]] = {
        "reads": {"readOnlyHint": True},
        "writes": {"readOnlyHint": False},
        "unknown": {},
        "destroys": {"readOnlyHint": False, "destructiveHint": True},
    }
    listed = [{**TOOL, "name": name, "annotations": one} for name, one in hints.items()]
    async with serve(ScriptedServer(tools=listed)) as server:
        await shop.add(server)
        names = [f"crm__{name}" for name in hints]
        every = await shop.open("crm__*", *BUILTIN)
        assert [every.is_acting(name) for name in names] == [False, True, True, True]
        assert not any(every.is_acting(name) for name in BUILTIN)
        named = await shop.open(*names)
        assert [named.is_acting(name) for name in names] == [False, False, False, True]
        marked = await shop.open("crm__*", "hand_over", acting=("crm__reads", "hand_over"))
        assert marked.is_acting("crm__reads")
        assert marked.is_acting("hand_over")
        all_marked = await shop.open(*names, acting=("crm__*",))
        assert all(all_marked.is_acting(name) for name in names)


@pytest.mark.parametrize("tool", ["delete.order", "delete order/now", "x." * 32])
async def test_acting_by_the_servers_own_name(shop: Shop, tool: str) -> None:
    """An owner who writes a tool as its server does allows it and has it confirmed."""
    async with serve(ScriptedServer(tools=[{**TOOL, "name": tool}])) as server:
        await shop.add(server)
        own, made = f"crm__{tool}", make_name("crm", tool)
        assert own != made
        tools = await shop.open(own, acting=(own,))
        assert [one["function"]["name"] for one in tools.definitions()] == [made]  # type: ignore[index]
        assert tools.is_acting(made)
        assert not (await shop.open(own)).is_acting(made)
        assert (await shop.open("crm__*", acting=(own,))).is_acting(made)


async def test_server_that_is_no_longer_allowed(shop: Shop) -> None:
    """The client of a server is closed when no tool of it is allowed; it is not made again."""
    async with serve(ScriptedServer()) as server:
        await shop.add(server)
        for others in ((), ("get_product",), ("other__*",)):
            tools = await shop.open("crm__*")
            assert len(shop.toolbox._pool._known) == 1
            await shop.open(*others)
            assert shop.toolbox._pool._known == {}
            result = await call(tools, "crm__look")
            assert (result.outcome, "removed or changed" in result.text) == ("error", True)
            assert shop.toolbox._pool._known == {}


async def test_removed_server(shop: Shop) -> None:
    """A server that was removed is not offered to the next answer, and its session is ended."""
    async with serve(ScriptedServer()) as server:
        await shop.add(server)
        assert len((await shop.open("crm__*")).definitions()) == 1
        await servers.remove(shop.operators, shop.tenant_id, "crm")
        assert (await shop.open("crm__*")).definitions() == []
        assert shop.toolbox._pool._known == {}


async def test_wrong_key(shop: Shop, database: Database, logs: io.BytesIO) -> None:
    """Headers sealed with another SECRETS_KEY: the agent answers without the servers."""
    async with serve(ScriptedServer()) as server:
        await shop.add(server, Authorization="Bearer x")
        other = Vault("another key for tests that is long enough")
        toolbox = Toolbox(Ranker(database), shop.operators, other, shop.outbound, shop.meter)
        caller = Caller(str(shop.tenant_id), shop.conversation_id, str(uuid4()), "cs")
        tools = await toolbox.open(caller, make_agent_settings("crm__*", "get_product"))
        assert len(tools.definitions()) == 1
        await toolbox.close()


async def test_demo(
    database_url: str, database: Database, operators: Database, make_shop: MakeShop
) -> None:
    """The demo's agent looks up a street, a tariff and an answer, in Czech."""
    for _ in range(2):
        await demo.ensure(Logins(database_url))
    row = await operators.one(
        "select s.* from agent_settings s join tenants t on t.id = s.tenant_id "
        "where t.slug = 'demo'"
    )
    assert row is not None
    shop: Shop = await make_shop("other")
    shop.tenant_id = row["tenant_id"]
    tools = await shop.open(*row["tools"])
    assert len(tools.definitions()) == 4
    assert not any(tools.is_acting(name) for name in row["tools"])
    street = {"street": "ul. Kounicova 12", "city": "Brno"}
    covered = await call(tools, "coverage__get_localities", street)
    assert covered.text == "Kounicova, Brno: covered, fibre, up to 1000 Mb/s."
    away = await call(tools, "coverage__get_localities", {"street": "Champs-Élysées"})
    assert away.text == "This street is not covered."
    wrong = await call(tools, "coverage__get_localities", {"road": "x"})
    assert wrong.outcome == "error"
    tariff = await call(tools, "get_product", {"query": "tarif Domov"})
    assert "399 Kč" in tariff.passages[0].text
    found = await call(tools, "search_knowledge", {"query": "kde najdu fakturu"})
    assert "portálu" in found.passages[0].text
