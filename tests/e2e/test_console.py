"""The console as administrators use it, on every kind of screen and without a mouse."""

from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import Browser, BrowserContext, FilePayload, expect

from administration import add_model
from e2e.console import Desk
from e2e.shop import Shop
from e2e.visitor import no_problems
from factories import Live, Site
from hlas.agent import agent_settings
from hlas.agent.agent_settings import AgentSettings
from hlas.agent.tools import products
from hlas.agent.tools.mcp import servers
from hlas.agent.tools.products import Product
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.knowledge.imports import sources
from hlas.knowledge.imports.reading import Reading
from hlas.knowledge.imports.sources import Part
from hlas.store.db import Database
from hlas.tenants import tenants
from questions import ask_in_vain

MODES: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 780}, "is_mobile": True, "has_touch": True},
    "forced colours": {"forced_colors": "active"},
}
# Nothing of it has to be scrolled to sideways.
ALL_OF_NAVIGATION = (
    "[...document.querySelectorAll('nav')].every((nav) => nav.scrollWidth <= nav.clientWidth)"
)


LOCALITIES = ("python", "-m", "hlas.demo.localities")
HELP: FilePayload = {
    "name": "help.html",
    "mimeType": "text/html",
    "buffer": b"<details><summary>Do you deliver?</summary>On Sunday, too.</details>"
    b"<details><summary>May I pay by card?</summary>Yes, by every card.</details>",
}
PROGRAM: FilePayload = {"name": "a.exe", "mimeType": "text/plain", "buffer": b"MZ"}
MANY_PRODUCTS = [Product(f"S-{number:02}", "Thing " * 80, "x" * 200) for number in range(25)]


async def furnish(site: Site, operators: Database) -> str:
    """Something on every page; the id of an entry."""
    answer = "Yes, **everywhere**: see the [map](https://example.com/map), code `HELLO`."
    added = await entries.add(operators, UUID(site.tenant_id), Entry("Do you deliver?", answer))
    await site.send("Do you deliver?", key="k")
    await site.send("Do you deliver?", key="k")
    await site.send("x" * 2001)
    await site.live.client.post("/widget/messages/assistant", headers=site.headers(), json={})
    await operators.execute(
        "insert into incidents (tenant_id, id, kind, details) "
        "values ($1::text::uuid, gen_random_uuid(), 'model_unavailable', '{\"status\": 503}')",
        site.tenant_id,
    )
    await operators.execute(
        "insert into spend (tenant_id, day, model, requests, amount) "
        "select $1::text::uuid, current_date - n, 'model-' || n % 3, n, n * 200000000::bigint "
        "from generate_series(0, 24) n union all "
        "select $1::text::uuid, current_date, 'large', 90, 4100000000",
        site.tenant_id,
    )
    await site.live.app.state.services.traffic.flush(operators)
    shop = await tenants.find_tenant(operators, site.slug)
    await agent_settings.update(operators, shop, {"models": [await add_model(operators)]})
    await ask_in_vain(operators, site.tenant_id, "Do you deliver on Sunday?", "thumbs_down")
    page = Reading("page", "https://shop.example/faq", None, (Entry("Hours", "9", kind="passage"),))
    await sources.save(operators, shop.id, [Part(page)])
    await servers.add_program(operators, shop.id, "coverage", LOCALITIES)
    rows = [Product("K-7", "Kettle", "Boils a litre in a minute.", "500 CZK"), *MANY_PRODUCTS]
    await products.save(operators, shop.id, rows, source="test")
    return str(added.id)


def pages_of(site: Site, entry_id: str) -> list[str]:
    tenant = f"/tenants/{site.slug}"
    return [
        "",
        "?range=week",
        f"?tenant={site.slug}",
        "/tenants",
        tenant,
        f"{tenant}/looks",
        f"{tenant}/knowledge?ask=deliver",
        f"{tenant}/knowledge?find=everywhere&ask=nothing+like+it",
        f"{tenant}/knowledge/{entry_id}",
        f"{tenant}/unanswered",
        f"{tenant}/spend",
        f"{tenant}/agent",
        f"{tenant}/tools",
        f"{tenant}/tools?find=kettle",
        f"{tenant}/conversations?text=deliver",
        f"{tenant}/conversations/{site.conversation_id}",
        "/conversations",
        "/models",
        "/models/tiny",
        "/blocked",
        "/incidents",
        "/audit",
    ]


async def check_page(desk: Desk) -> None:
    """No violation with everything unfolded, and nothing wider than the screen."""
    page = desk.page
    await page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert await desk.violations() == [], page.url
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), page.url
    assert await page.evaluate(ALL_OF_NAVIGATION), page.url


@pytest.mark.parametrize("mode", MODES)
async def test_axe_finds_nothing(
    browser: Browser, answered: Site, operators: Database, mode: str
) -> None:
    """0 violations on every page, everything unfolded, and nothing wider than the screen."""
    entry_id = await furnish(answered, operators)
    # The checker is a script of its own, which the strict policy would refuse.
    context = await browser.new_context(bypass_csp=True, **MODES[mode])
    desk = await Desk.open(context, answered.live, operators)
    for path in pages_of(answered, entry_id):
        await desk.go(path)
        await check_page(desk)
    await desk.go(f"/tenants/{answered.slug}/unanswered")
    await desk.page.get_by_role("link", name="Add answer").click()
    await expect(desk.page.get_by_role("heading", name="Add answer")).to_be_visible()
    await check_page(desk)
    await desk.go(f"/tenants/{answered.slug}/knowledge")
    await desk.page.get_by_label("Documents").set_input_files([HELP, PROGRAM])
    await desk.page.get_by_role("button", name="Preview").click()
    await expect(desk.page.get_by_role("heading", name="Preview")).to_be_visible()
    await check_page(desk)
    await desk.go(f"/tenants/{answered.slug}/agent")
    await desk.page.get_by_label("A visitor asks").fill("Do you deliver?")
    await desk.page.get_by_role("button", name="Ask").click()
    await expect(desk.page.get_by_role("heading", name="The answer")).to_be_visible()
    await check_page(desk)
    await desk.go(f"/tenants/{answered.slug}/tools")
    await desk.page.get_by_role("button", name="Test coverage").click()
    await expect(desk.page.get_by_text("coverage__get_localities")).to_be_visible()
    await check_page(desk)
    await desk.page.get_by_label("CSV", exact=True).fill("sku,name\nA")
    await desk.page.get_by_role("button", name="Import").click()
    await expect(desk.page.get_by_text("CSV, line 2: 1 cells")).to_be_in_viewport()
    await check_page(desk)
    await desk.go("/nowhere")
    await check_page(desk)
    await desk.page.get_by_role("link", name="Back to the overview").click()
    await desk.page.get_by_role("button", name="Sign out").click()
    await expect(desk.page.get_by_role("status")).to_have_text("You are signed out.")
    assert await desk.violations() == []
    assert desk.problems == []
    await context.close()


async def test_from_nothing_to_the_first_conversation(
    context: BrowserContext, live_server: Live, operators: Database
) -> None:
    """A new operator sets a tenant up and reads its first conversation, without any SQL."""
    desk = await Desk.open(context, live_server, operators)
    page = desk.page
    await page.get_by_role("link", name="Tenants").click()
    await page.get_by_label("Name").fill("Flower Shop")
    await page.get_by_label("Slug").fill("flowers")
    await page.get_by_label("Domains").fill("https://flowers.example")
    await page.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Flower Shop")
    await expect(page.locator("#embed")).to_contain_text(f"{live_server.url}/widget.js")

    await page.get_by_role("link", name="Knowledge").click()
    await page.get_by_label("Question").fill("When do you open?")
    await page.get_by_label("Answer", exact=True).fill("At nine.")
    await page.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("status")).to_have_text("Added.")
    await page.get_by_label("A visitor asks").fill("when open")
    await page.get_by_role("button", name="Ask").click()
    await expect(page.get_by_role("status")).to_contain_text("At nine.")

    added = await tenants.find_tenant(operators, "flowers")
    site = Site(live_server, "flowers", str(added.id), "https://flowers.example")
    await site.open(visitor_id="anna")
    await site.send("When do you open?")
    await page.get_by_role("navigation", name="Console").get_by_text("Conversations").click()
    await page.get_by_role("link", name="When do you open?").click()
    await expect(page.get_by_role("log")).to_contain_text("When do you open?")
    assert desk.problems == []


async def test_the_transcript_is_live(
    context: BrowserContext, site: Site, operators: Database
) -> None:
    """What a visitor writes appears by itself, once and in order; closing ends the conversation."""
    await site.send("first")
    desk = await Desk.open(context, site.live, operators)
    page = desk.page
    await desk.go(f"/tenants/{site.slug}/conversations/{site.conversation_id}")
    bubbles = page.locator("#log .bubble")
    await expect(bubbles).to_have_text(["first"])
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    for text in ("second", "third"):
        await site.send(text)
    await expect(bubbles).to_have_text(["first", "second", "third"], timeout=20_000)
    await expect(page.locator("#log .day")).to_have_count(1)
    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Close the conversation").click()
    await expect(page.get_by_role("status")).to_have_text("The conversation is closed.")
    assert (await site.send("fourth")).json()["detail"] == "conversation_closed"
    assert desk.problems == []


async def test_looks_are_tried_on_before_they_are_saved(
    browser: Browser, context: BrowserContext, shop: Shop
) -> None:
    """The preview is the real widget and follows the form; visitors see it once it is saved."""
    desk = await Desk.open(context, shop.live, shop.operators)
    page = desk.page
    await desk.go(f"/tenants/{shop.site.slug}/looks")
    widget = page.frame_locator("#preview").locator("hlas-chat")
    header = widget.locator("header")
    title = page.get_by_label("Title", exact=True)
    await title.click()
    await page.keyboard.type("Tulip")
    await expect(header.locator("strong")).to_have_text("Tulip")
    # The frame, which opens its panel anew, does not take the focus from whoever writes.
    await expect(title).to_be_focused()
    await page.keyboard.type(" & <b>Rose</b>")
    await expect(header.locator("strong")).to_have_text("Tulip & <b>Rose</b>")
    await page.get_by_label("Colour", exact=True).fill("#a01050")
    await expect(header).to_have_css("background-color", "rgb(160, 16, 80)")
    await page.get_by_label("Suggested questions", exact=True).fill("One?\nTwo?")
    await expect(widget.locator(".chips button")).to_have_text(["One?", "Two?"])
    await widget.locator("textarea").fill("hello")
    await widget.locator("textarea").press("Enter")
    await expect(widget.locator(".assistant .bubble").last).to_contain_text("how an answer looks")
    assert (await tenants.find_tenant(shop.operators, shop.site.slug)).ui_config == {}

    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status")).to_have_text("Saved.")
    visitor = await shop.arrive(await browser.new_context())
    await visitor.open()
    await expect(visitor.panel).to_contain_text("Tulip & <b>Rose</b>")
    no_problems(visitor)
    assert desk.problems == []


async def test_an_agent_gets_a_model(
    context: BrowserContext, site: Site, operators: Database
) -> None:
    """An operator adds a model and chooses it; the field counts the characters of instructions."""
    desk = await Desk.open(context, site.live, operators)
    page = desk.page
    await page.get_by_role("link", name="Models").click()
    await page.get_by_label("Name", exact=True).fill("local")
    await page.get_by_label("Address").fill("http://127.0.0.1:1/v1")
    await page.get_by_label("The provider's name of the model").fill("llama3")
    await page.get_by_label("It costs nothing").check()
    await page.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("status")).to_have_text("Added.")
    await page.get_by_role("button", name="Send a test request").click()
    await expect(page.get_by_role("alert")).to_have_text(
        "It does not work: nothing answers at its address."
    )
    await desk.go(f"/tenants/{site.slug}/agent")
    await page.get_by_label("First choice").select_option("local")
    await page.get_by_label("Instructions").fill("Be brief. 🙂")
    await expect(page.locator("#instructions-help")).to_contain_text("11 of 8000 characters")
    await page.get_by_label("Find products and their prices", exact=False).first.uncheck()
    await page.get_by_role("checkbox", name="Ask the visitor before: Ask a person").check()
    await page.get_by_label("Answers may link to").fill("maps.example")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status")).to_have_text("Saved.")
    shop = await tenants.find_tenant(operators, site.slug)
    assert await agent_settings.read(operators, shop.id) == AgentSettings(
        models=("local",),
        instructions="Be brief. 🙂",
        tools=("search_knowledge", "hand_over"),
        acting_tools=("hand_over",),
        link_hosts=("maps.example",),
        max_steps=None,
        is_debug=False,
    )
    assert desk.problems == []


async def test_the_keyboard_does_everything(
    context: BrowserContext, site: Site, operators: Database
) -> None:
    """Skip to the content, choose a time, open the figures: no mouse."""
    await furnish(site, operators)
    desk = await Desk.open(context, site.live, operators)
    page = desk.page
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#content")).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(page.get_by_label("Tenant", exact=True)).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(page.get_by_label("Last hour")).to_be_focused()
    await page.keyboard.press("ArrowRight")
    await page.wait_for_url("**range=day**")
    summary = page.locator("summary").first
    await summary.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("region", name="Messages: figures")).to_be_visible()
    assert desk.problems == []


async def test_it_works_without_script(browser: Browser, site: Site, operators: Database) -> None:
    """Reading and changing need no script: forms are forms."""
    context = await browser.new_context(java_script_enabled=False)
    desk = await Desk.open(context, site.live, operators)
    page = desk.page
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    await desk.go(f"/tenants/{site.slug}")
    await page.get_by_label("Name").fill("Plain")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Plain")
    await desk.go(f"/tenants/{site.slug}/conversations/{site.conversation_id}")
    await page.get_by_role("button", name="Hand back").click()
    await expect(page.get_by_text("The agent answers.")).to_be_visible()
    await page.get_by_label("Reply").fill("- **plain**")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator("#log .operator .bubble")).to_have_text("- **plain**")
    await expect(page.get_by_text("People answer")).to_be_visible()
    await context.close()


async def test_the_overview_shows_what_happened(
    context: BrowserContext, answered: Site, operators: Database
) -> None:
    """The figures behind the plots are those of the tenant."""
    await furnish(answered, operators)
    desk = await Desk.open(context, answered.live, operators)
    await desk.go(f"?tenant={answered.slug}")
    for title, headline in (
        ("Messages", "2"),
        ("Sessions", "1"),
        ("Blocked", "1"),
        ("Replays and conflicts", "1"),
    ):
        figure = desk.page.locator("figure").filter(
            has=desk.page.get_by_role("heading", name=title, exact=True)
        )
        await expect(figure.locator(".headline")).to_have_text(headline)
        await expect(figure.locator("path.columns[d*='M']")).not_to_have_count(0)
    await expect(desk.page.get_by_text("p99", exact=False).first).to_be_visible()
    assert desk.problems == []
