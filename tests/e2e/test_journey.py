"""The whole way of a visitor, on the demo page and on a stranger's page with a strict policy."""

import hashlib
import statistics
from base64 import b64encode

from playwright.async_api import Browser, BrowserContext, expect

from e2e.shop import HTML, Shop
from e2e.visitor import Visitor, no_problems
from factories import Live
from hlas.demo import tenant as demo
from hlas.store.logins import Logins
from hlas.web import assets


async def test_before_opening_there_is_one_request_and_nothing_stored(
    context: BrowserContext, shop: Shop
) -> None:
    """A page with the widget costs one request, no storage and no cookie until it is opened."""
    visitor = await shop.arrive(context)
    await visitor.page.wait_for_timeout(300)
    to_api = [one.url for one in visitor.requests if one.url.startswith(shop.live.url)]
    assert to_api == [f"{shop.live.url}/widget.js"]
    assert len(visitor.requests) == 2  # the page itself, and the script
    assert await visitor.stored() == {}
    assert await context.cookies() == []
    no_problems(visitor)


async def test_how_long_the_script_runs_before_opening(browser: Browser, shop: Shop) -> None:
    """Prints the script time of a page load: a figure of the machine, so nothing is demanded."""
    figures = []
    for _ in range(5):
        context = await browser.new_context()
        page = await context.new_page()
        inspector = await context.new_cdp_session(page)
        await inspector.send("Performance.enable")
        await page.goto(shop.page())
        await page.locator("hlas-chat .launcher").wait_for()
        answer = await inspector.send("Performance.getMetrics")
        figures += [one["value"] for one in answer["metrics"] if one["name"] == "ScriptDuration"]
        await context.close()
    assert len(figures) == 5
    print(f"script before opening: {1000 * statistics.median(figures):.1f} ms")


async def test_the_whole_journey_under_the_strictest_policy(
    context: BrowserContext, shop: Shop
) -> None:
    """Open, ask, be answered, reload, go on, close: no policy violation, everything stored once."""
    visitor = await shop.arrive(context)
    await visitor.open()
    await expect(visitor.field).to_be_focused()
    await visitor.write("hello there")
    await expect(visitor.rows("assistant")).to_have_count(2)  # the greeting and the answer
    await visitor.settled()
    await visitor.page.reload()
    await expect(visitor.panel).to_be_visible()
    await expect(visitor.rows("user")).to_have_text(["hello there"])
    await visitor.write("and again")
    await visitor.settled()
    await expect(visitor.rows("user")).to_have_text(["hello there", "and again"])
    await visitor.page.keyboard.press("Escape")
    await expect(visitor.panel).to_be_hidden()
    await expect(visitor.launcher).to_be_focused()
    assert await shop.messages("user") == ["hello there", "and again"]
    assert len(await shop.messages("assistant")) == 2
    no_problems(visitor)


async def test_the_demo_page_answers_and_shows_what_happens(
    context: BrowserContext, live_server: Live, database_url: str
) -> None:
    """On the demo page a lost answer is replayed with the same key, and the panel shows it."""
    await demo.ensure(Logins(database_url))
    visitor = await Visitor.arrive(context, f"{live_server.url}/")
    assert visitor.page.url == f"{live_server.url}/demo"
    await expect(visitor.panel).to_contain_text("Customer support")
    await visitor.page.goto(f"{live_server.url}/demo/cs")
    await visitor.page.locator("summary").click()
    await visitor.page.locator("[data-fault=lose]").click()
    await visitor.open()
    await visitor.write("Kde najdu fakturu?")
    await expect(visitor.rows("assistant").last).to_contain_text("zákaznickém portálu")
    await visitor.settled()
    await expect(visitor.rows("user")).to_have_count(1)
    table = visitor.page.locator("#requests")
    await expect(table).to_contain_text("zopakováno")
    await expect(table).to_contain_text("odpověď ztracena")
    await expect(visitor.page.locator("#line")).to_have_text(assets.embed_line(live_server.url))
    no_problems(visitor)


async def test_a_pinned_script_runs_and_a_changed_one_does_not(
    context: BrowserContext, shop: Shop
) -> None:
    """The embed line with an integrity hash works; with another script's hash nothing runs."""
    line = assets.embed_line(shop.live.url, pinned=True)
    html = HTML.format(lang="en", dir="ltr", script=line)
    visitor = await Visitor.arrive(context, shop.website.put("/", html, shop.strict_policy()))
    await visitor.open()
    await visitor.write("pinned")
    await visitor.settled()
    no_problems(visitor)
    wrong = "sha384-" + b64encode(hashlib.sha384(b"another").digest()).decode()
    html = html.replace(assets.widget().integrity, wrong)
    await visitor.page.goto(shop.website.put("/wrong", html))
    assert await visitor.page.evaluate("customElements.get('hlas-chat') === undefined")


async def test_the_script_interface(context: BrowserContext, shop: Shop) -> None:
    """open, close, send and reset work from the page, and events tell what happened."""
    visitor = await shop.arrive(context, 'data-title="Our shop"')
    page = visitor.page
    await page.evaluate(
        """window.heard = [];
        for (const name of ["open", "close", "sent", "message"])
          document.addEventListener("hlas:" + name, () => heard.push(name));"""
    )
    await page.evaluate("hlas.open()")
    await expect(visitor.panel).to_contain_text("Our shop")
    assert await page.evaluate("hlas.send('  ')") is None
    assert await page.evaluate("hlas.send('from the page')")
    await expect(visitor.rows("assistant")).to_have_count(2)
    await visitor.settled()
    await page.evaluate("hlas.close()")
    await expect(visitor.panel).to_be_hidden()
    await page.wait_for_function("() => heard.includes('close')")
    assert await page.evaluate("heard") == ["open", "sent", "message", "close"]
    await page.evaluate("hlas.reset()")
    await page.wait_for_timeout(200)
    assert await visitor.stored() == {}
    await visitor.open()
    await expect(visitor.rows("user")).to_have_count(0)
    await expect(page.locator("hlas-chat .row")).to_have_count(1)
    no_problems(visitor)


async def test_pages_of_one_site_share_the_conversation(
    context: BrowserContext, shop: Shop
) -> None:
    """A conversation begun on one page goes on on the next, in a new tab, too."""
    visitor = await shop.arrive(context)
    await visitor.open()
    await visitor.write("from the first page")
    await visitor.settled()
    second = await Visitor.arrive(context, shop.page(path="/second"))
    await expect(second.rows("user")).to_have_text(["from the first page"])
    await second.write("from the second page")
    await second.settled()
    await visitor.page.bring_to_front()
    await expect(visitor.rows("user")).to_have_text(["from the first page", "from the second page"])
    no_problems(visitor, second)
