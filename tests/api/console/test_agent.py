"""The console's pages of models and of a tenant's agent, over plain HTTP."""

import re
from uuid import UUID

import pytest

import log_scan
from administration import add_model, audit_of
from browsers import Browser, make_browser
from factories import Site, make_site
from hlas.agent import agent_settings, evaluation
from hlas.agent.evaluation import Case
from hlas.agent.money import dollars
from hlas.agent.providers import models
from hlas.store.db import Database
from hlas.store.vault import Vault
from hlas.tenants import tenants
from model_scripts import Refuse, Say, Usage
from modelled import COVERED, give_model
from scripted_model import ScriptedModel

KEY = "sk-provider-0123456789abcdef"
SECRETS_KEY = "a key for tests that is long enough"
SEALED = pytest.mark.settings(secrets_key=SECRETS_KEY)
REVISION = re.compile(r'name="revision" value="([0-9a-f]+)"')


async def revision_of(browser: Browser, path: str) -> str:
    return str(REVISION.findall((await browser.get(path)).text)[0])


@SEALED
async def test_the_form_does_not_carry_a_price_to_another_model(
    site: Site, operators: Database
) -> None:
    """The form repeats `free`; another model is free only if the operator says so."""
    browser = await make_browser(site.live, operators)
    fields = {"base_url": "http://127.0.0.1:11434/v1", "model": "llama3", "is_free": "on"}
    await browser.post("/models", **fields, name="local")
    page = await browser.get("/models/local")
    assert 'name="keep_price"' in page.text
    moved = {**fields, "model": "gpt-9", "revision": REVISION.findall(page.text)[0]}
    refused = await browser.post("/models/local", **moved)
    assert (refused.status_code, "declare the model free" in refused.text) == (409, True)
    assert (await models.find_listed(operators, "local")).model == "llama3"
    kept = await browser.post("/models/local", **moved, keep_price="on")
    assert kept.status_code == 303
    changed = await models.find_listed(operators, "local")
    assert (changed.model, changed.is_free) == ("gpt-9", True)


@SEALED
async def test_a_model_from_nothing_to_removed(site: Site, operators: Database) -> None:
    """Add, change, keep and replace its key, remove; no page shows the key."""
    log_scan.hear(KEY)
    browser = await make_browser(site.live, operators)
    fields = {"name": "gpt", "base_url": "https://api.example.com/v1", "model": "gpt-9"}
    prices = {"input_price": "2.50", "output_price": "10"}
    wrong = await browser.post("/models", **fields, key=KEY, input_price="lots", output_price="1")
    assert (wrong.status_code, "such as 2.50" in wrong.text) == (422, True)
    assert 'value="gpt-9"' in wrong.text
    unknown = await browser.post("/models", **fields, key=KEY)
    assert (unknown.status_code, "declare the model free" in unknown.text) == (409, True)
    added = await browser.post("/models", **fields, **prices, key=KEY)
    assert (added.status_code, added.headers["location"]) == (
        303,
        "/console/models/gpt?done=added",
    )
    listed = await browser.get("/models")
    assert "$2.5 in, $10 out" in listed.text
    page = await browser.get("/models/gpt")
    revision = REVISION.findall(page.text)[0]
    same = {"base_url": "https://api.example.com/v1", "model": "gpt-10", "revision": revision}
    saved = await browser.post("/models/gpt", **same, **prices)
    assert saved.status_code == 303, saved.text
    vault = Vault(SECRETS_KEY)
    assert (await models.find(operators, vault, "gpt")).key == KEY
    outdated = await browser.post("/models/gpt", **same, **prices)
    assert (outdated.status_code, "changed since you read it" in outdated.text) == (409, True)
    revision = await revision_of(browser, "/models/gpt")
    moved = {"base_url": "https://evil.example", "model": "gpt-10", "revision": revision}
    refused = await browser.post("/models/gpt", **moved, **prices)
    assert (refused.status_code, "give its key again" in refused.text) == (409, True)
    unpriced = await browser.post("/models/gpt", **moved, key="other-key")
    assert unpriced.status_code == 422
    replaced = await browser.post("/models/gpt", **moved, key="other-key", is_free="on")
    assert replaced.status_code == 303
    assert (await models.find(operators, vault, "gpt")).key == "other-key"
    revision = await revision_of(browser, "/models/gpt")
    bare = await browser.post(
        "/models/gpt", **{**moved, "revision": revision}, no_key="on", is_free="on"
    )
    assert bare.status_code == 303
    assert (await models.find(operators, vault, "gpt")).key == ""
    gone = await browser.post("/models/gpt/remove")
    assert (gone.status_code, gone.headers["location"]) == (303, "/console/models?done=removed")
    assert (await browser.get("/models/gpt")).status_code == 404
    seen = (wrong, unknown, listed, page, outdated, refused, unpriced, await browser.get("/audit"))
    assert not [answer.url for answer in seen if KEY in answer.text or "other-key" in answer.text]


@SEALED
async def test_a_model_is_tested(site: Site, operators: Database) -> None:
    """The button sends one request and shows times, tokens and cost, or what is wrong."""
    browser = await make_browser(site.live, operators)
    log_scan.hear(KEY)
    async with ScriptedModel(lambda _: [Say("yes"), Usage("9/1")]) as provider:
        fields = {"name": "gpt", "base_url": provider.url, "model": "tiny", "key": KEY}
        await browser.post("/models", **fields, input_price="1000", output_price="2000")
        works = await browser.post("/models/gpt/test")
        assert works.status_code == 200
        for shown in ("It works.", "9 in, 1 out", "$0.0110"):
            assert shown in works.text, shown
        provider.script = lambda _: [Refuse(401)]
        fails = await browser.post("/models/gpt/test")
        assert "It does not work: the provider does not accept the key (401)." in fails.text
        assert len(provider.requests) == 2
    assert KEY not in works.text + fails.text
    await operators.execute("update models set key = '\\x00'")
    shut = await browser.post("/models/gpt/test")
    assert (shut.status_code, "SECRETS_KEY" in shut.text) == (409, True)


async def test_models_are_the_operators(site: Site, operators: Database) -> None:
    """A tenant's administrator has neither the pages nor a link to them."""
    await add_model(operators, "gpt")
    browser = await make_browser(site.live, operators, site.slug)
    for path in ("/models", "/models/gpt"):
        assert (await browser.get(path)).status_code == 403
    for path in ("/models", "/models/gpt", "/models/gpt/test", "/models/gpt/remove"):
        assert (await browser.post(path, name="x")).status_code == 403
    page = await browser.get(f"/tenants/{site.slug}/agent")
    assert "/console/models" not in page.text
    operator = await make_browser(site.live, operators)
    assert 'href="/console/models"' in (await operator.get("/tenants")).text


async def test_a_used_model_cannot_be_removed(site: Site, operators: Database) -> None:
    """The page names the tenants instead of a button; a form sent anyway is refused."""
    await add_model(operators, "gpt")
    shop = await tenants.find_tenant(operators, site.slug)
    await agent_settings.update(operators, shop, {"models": ["gpt"]})
    browser = await make_browser(site.live, operators)
    page = await browser.get("/models/gpt")
    assert f'href="/console/tenants/{site.slug}/agent"' in page.text
    assert "Remove model" not in page.text
    assert (await browser.post("/models/gpt/remove")).status_code == 409
    assert "Used by" in (await browser.get("/models")).text


async def test_an_operator_sets_everything(site: Site, operators: Database) -> None:
    """Models in order, instructions, tools, confirmation, hosts, steps and the debug flag."""
    await add_model(operators, "first")
    await add_model(operators, "second")
    browser = await make_browser(site.live, operators)
    path = f"/tenants/{site.slug}/agent"
    sent = {
        "revision": await revision_of(browser, path),
        "model_0": "second",
        "model_1": "first",
        "instructions": " Be <b>brief</b>.\r\nAlways. ",
        "tool.hand_over": "on",
        "tool.search_knowledge": "on",
        "acting.hand_over": "on",
        "add_tool": "crm__book",
        "link_hosts": "maps.example\n*.partner.example",
        "max_steps": "3",
        "is_debug": "on",
    }
    saved = await browser.post(path, **sent)
    assert (saved.status_code, saved.headers["location"]) == (303, f"/console{path}?done=saved")
    shop = await tenants.find_tenant(operators, site.slug)
    settings = await agent_settings.read(operators, shop.id)
    assert settings.models == ("second", "first")
    assert settings.instructions == "Be <b>brief</b>.\nAlways."
    assert settings.tools == ("hand_over", "search_knowledge", "crm__book")
    assert settings.acting_tools == ("hand_over",)
    assert settings.link_hosts == ("maps.example", "*.partner.example")
    assert (settings.max_steps, settings.is_debug) == (3, True)
    page = (await browser.get(path)).text
    assert "Be &lt;b&gt;brief&lt;/b&gt;." in page
    for checked in ("tool.hand_over", "tool.crm__book", "is_debug"):
        assert f'name="{checked}" checked' in page
    assert 'name="tool.get_product" checked' not in page
    assert re.findall(r'<option value="(\w+)" selected>', page) == ["second", "first", "3"]
    outdated = await browser.post(path, **sent)
    assert (outdated.status_code, "changed since you read it" in outdated.text) == (409, True)
    assert (await audit_of(operators))[-1][1:] == ("agent.update", site.slug)


async def test_wrong_values_are_explained(site: Site, operators: Database) -> None:
    """The page is shown again with what was written and a message; nothing changes."""
    await add_model(operators, "a")
    browser = await make_browser(site.live, operators)
    path = f"/tenants/{site.slug}/agent"
    revision = await revision_of(browser, path)
    before = await audit_of(operators)
    for fields, said in (
        ({"link_hosts": "https://maps.example"}, "Write a host such as example.com"),
        ({"add_tool": "rm -rf"}, "one of an MCP server"),
        ({"instructions": "x" * 8001}, "Write at most 8000 characters."),
        ({"max_steps": "9"}, "Write 5 or less."),
        ({"model_0": "no-such"}, "There is no such model."),
        ({"model_0": "a", "model_1": "a"}, "Name each of them once."),
    ):
        answer = await browser.post(path, revision=revision, **fields)
        assert answer.status_code in {409, 422}, fields
        assert said in answer.text, fields
        for name, value in fields.items():
            assert name.startswith("m") or value in answer.text, "what was written is lost"
    assert await audit_of(operators) == before


async def test_a_tenant_sets_its_own(site: Site, operators: Database) -> None:
    """A tenant's administrator changes instructions; a model sent along is not taken."""
    await add_model(operators, "gpt")
    browser = await make_browser(site.live, operators, site.slug)
    path = f"/tenants/{site.slug}/agent"
    page = (await browser.get(path)).text
    assert "model_0" not in page
    assert "is_debug" not in page
    revision = REVISION.findall(page)[0]
    saved = await browser.post(
        path, revision=revision, instructions="Ours.", model_0="gpt", is_debug="on"
    )
    assert saved.status_code == 303
    shop = await tenants.find_tenant(operators, site.slug)
    settings = await agent_settings.read(operators, shop.id)
    assert (settings.instructions, settings.models, settings.is_debug) == ("Ours.", (), False)
    other = await make_site(site.live, operators)
    assert (await browser.get(f"/tenants/{other.slug}/agent")).status_code == 404
    for below in ("", "/try"):
        refused = await browser.post(f"/tenants/{other.slug}/agent{below}", question="x")
        assert refused.status_code == 404


async def test_nothing_to_try_without_a_model(site: Site, operators: Database) -> None:
    """Without a model the pane says so, keeps the question and leads to the knowledge."""
    browser = await make_browser(site.live, operators, site.slug)
    answer = await browser.post(f"/tenants/{site.slug}/agent/try", question="When <b>open</b>?")
    assert answer.status_code == 200
    assert "No model is chosen" in answer.text
    assert "When &lt;b&gt;open&lt;/b&gt;?" in answer.text
    assert 'id="trial"' not in answer.text
    rows = await operators.all("select 1 from messages union all select 1 from runs")
    assert rows == []


async def test_a_question_is_tried(site: Site, operators: Database) -> None:
    """The tenant's agent answers, escaped, with passages, steps, prompt, tokens, cost and time;
    the question is not stored anywhere, and its cost is in the books.
    """
    async with ScriptedModel() as provider:
        await give_model(operators, site.tenant_id, provider.url, price=10**10)
        browser = await make_browser(site.live, operators, site.slug)
        call = 'call search_knowledge {"query": "open"}'
        question = f"{COVERED}\n{call} then usage 1200/34 repeat At <nine> [1]."
        path = f"/tenants/{site.slug}/agent/try"
        answer = await browser.post(path, question=question)
        assert len(provider.requests) == 2
    assert answer.status_code == 200, answer.text
    shown = answer.text[answer.text.index('id="trial"') :]
    for expected in (
        "by the model",
        "At &lt;nine&gt; [1].",
        "<summary>Passages (",
        "Delivery costs 99 crowns.",
        "<summary>Steps (3)</summary>",
        "tool: ok",
        "<h3>system</h3>",
        "tokens in",
        "<dd>search_knowledge</dd>",
    ):
        assert expected in shown, expected
    assert re.search(r"<dt>Time</dt><dd>\d+\.\d s</dd>", shown)
    [spent] = await operators.all("select requests, amount from spend")
    assert spent["requests"] == 2
    assert f"<dd>{dollars.describe(spent['amount'])}</dd>" in shown
    for table in ("messages", "runs", "confirmations"):
        assert await operators.all(f"select 1 from {table}") == [], table


async def test_a_model_that_fails_is_shown(site: Site, operators: Database) -> None:
    """The pane says that the model failed and what the visitor would get instead."""
    async with ScriptedModel() as provider:
        await give_model(operators, site.tenant_id, provider.url)
        browser = await make_browser(site.live, operators)
        path = f"/tenants/{site.slug}/agent/try"
        answer = await browser.post(path, question="fail 500 What does delivery cost?")
    assert len(provider.requests) == 1
    assert answer.status_code == 200
    assert "the model failed" in answer.text
    assert "not reported: the most they can cost is counted" in answer.text
    assert 'class="chip bad"' in answer.text


async def test_the_last_evaluations(site: Site, operators: Database) -> None:
    """A table of the tenant's own, newest first; the command in any case."""
    browser = await make_browser(site.live, operators, site.slug)
    path = f"/tenants/{site.slug}/agent"
    command = f"hlas evaluate questions.jsonl --tenant {site.slug}"
    empty = (await browser.get(path)).text
    assert (command in empty, "None yet." in empty) == (True, True)
    other = await make_site(site.live, operators)
    agent = site.live.app.state.services.agent
    cases = [
        Case(question="Whale banana plane?", expected_entry=None),
        Case(question="Whale banana boat?", words=["fish"]),
    ]
    for owner, source in ((site, "older.jsonl"), (site, "<new>.jsonl"), (other, "theirs.jsonl")):
        await evaluation.evaluate(operators, agent, UUID(owner.tenant_id), cases, source=source)
    page = (await browser.get(path)).text
    assert command in page
    rows = re.findall(r"<tr>\s+<td><time.+?</tr>", page, re.DOTALL)
    assert [re.findall(r"<td>([^<]+)</td>", row) for row in rows] == [
        ["&lt;new&gt;.jsonl"],
        ["older.jsonl"],
    ]
    figures = re.findall(r'class="number">([^<]+)</td>', rows[0])
    assert figures[:5] == ["1 (50 %)", "0", "0", "1", "$0.00"]
    assert all(figure.endswith(" ms") for figure in figures[5:])
    assert "Whale" not in page
