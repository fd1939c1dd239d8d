"""The console beside a conversation that goes on: transcript, list and answers of people."""

import asyncio
from dataclasses import dataclass, field, replace
from uuid import UUID

from playwright.async_api import Browser, BrowserContext, Locator, Route, expect

from cables import open_wire
from e2e.console import Desk
from e2e.shop import Shop
from e2e.visitor import no_problems
from factories import Live, Site
from hlas.agent import Answer, Listener, Question
from hlas.conversations import conversations
from hlas.store.db import Database

MARKDOWN = """Yes, **everywhere**, *really*:

- to your door
- to a [pick-up point](https://example.com/points)

3. Order by noon
4. Pay with `HELLO`

```
HELLO 10 %
  lasts a week
```
See https://example.com/help <b>now</b>."""


@dataclass
class Typist:
    """An agent that says what it is told to, when it is told to."""

    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, _: Question, listener: Listener) -> Answer:
        for word in ("Let ", "me ", "**look**"):
            listener.say(word)
        await self.go_on.wait()
        listener.say(": yes.")
        return Answer("Let me **look**: yes.", "agent", 1.0)


async def follow(context: BrowserContext, site: Site, operators: Database) -> Desk:
    """A desk with the transcript of the site's conversation."""
    desk = await Desk.open(context, site.live, operators)
    await desk.go(f"/tenants/{site.slug}/conversations/{site.conversation_id}")
    await expect(desk.page.get_by_text("live", exact=True)).to_be_visible()
    return desk


def bubbles(desk: Desk, kind: str = "row") -> Locator:
    return desk.page.locator(f"#log .{kind} > .bubble")


async def hide(desk: Desk, *, is_hidden: bool) -> None:
    """Another tab is in front of this one, or not any more."""
    await desk.page.evaluate(
        """(hidden) => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


def hire(live: Live) -> Typist:
    typist = Typist()
    live.app.state.services.runner._agent = typist
    return typist


async def texts_of(site: Site, role: str) -> list[str]:
    history = await site.history()
    return [one["content"] for one in history["messages"] if one["role"] == role]


async def test_an_answer_grows(
    browser: Browser, context: BrowserContext, answered: Site, operators: Database
) -> None:
    """Word by word, as Markdown; complete, it stands there once. A reload shows the same."""
    typist = hire(answered.live)
    desk = await follow(context, answered, operators)
    await answered.send("Do you deliver?")
    growing = desk.page.locator("#log .growing")
    await expect(growing.locator("strong")).to_have_text("look")
    await expect(bubbles(desk)).to_have_text(["Do you deliver?", "Let me look"])
    # A page that is opened meanwhile shows the same.
    other = await follow(await browser.new_context(), answered, operators)
    await expect(bubbles(other)).to_have_text(["Do you deliver?", "Let me look"])
    await answered.send("Hello?")
    await expect(bubbles(other)).to_have_text(["Do you deliver?", "Hello?", "Let me look"])
    typist.go_on.set()
    await expect(growing).to_have_count(0)
    both = ["Let me look: yes."]
    await expect(bubbles(other, "assistant")).to_have_text(both * 2)
    await expect(bubbles(desk, "assistant")).to_have_text(both * 2)
    lines = desk.page.locator("#log > ol > li")
    look = "all => all.map((one) => [one.className, one.innerText])"
    shown = await lines.evaluate_all(look)
    await desk.page.reload()
    await expect(bubbles(desk, "assistant").locator("strong")).to_have_text(["look"] * 2)
    assert await lines.evaluate_all(look) == shown
    assert desk.problems + other.problems == []


async def test_an_answer_that_is_void_goes_away(
    browser: Browser, context: BrowserContext, answered: Site, operators: Database
) -> None:
    """Taking over ends the agent's answer on every page, also on one in the background."""
    typist = hire(answered.live)
    desk = await follow(context, answered, operators)
    other = await follow(await browser.new_context(), answered, operators)
    await answered.send("Do you deliver?")
    await expect(other.page.locator("#log .growing")).to_contain_text("look")
    await expect(desk.page.locator("#log .growing")).to_contain_text("look")
    await hide(other, is_hidden=True)
    await desk.page.get_by_role("button", name="Take over").click()
    await expect(desk.page.get_by_text("People answer")).to_be_visible()
    await expect(other.page.locator("#log .growing")).to_contain_text("look")
    await hide(other, is_hidden=False)
    for one in (desk, other):
        await expect(one.page.locator("#log .growing")).to_have_count(0)
        await expect(one.page.get_by_text("People answer")).to_be_visible()
    typist.go_on.set()
    await answered.send("Still there?")
    await expect(bubbles(other)).to_have_text(["Do you deliver?", "Still there?"])
    await other.page.get_by_role("button", name="Hand back").click()
    await expect(other.page.get_by_text("The agent answers.")).to_be_visible()
    await expect(bubbles(other, "assistant")).to_have_text(["Let me look: yes."])
    assert await texts_of(answered, "assistant") == ["Let me **look**: yes."]
    assert desk.problems + other.problems == []


async def test_markdown_is_that_of_the_widget(
    browser: Browser, context: BrowserContext, shop: Shop
) -> None:
    """The same nodes for the visitor and for the operator, loaded or live."""
    visitor = await shop.arrive(context)
    await visitor.open()
    await visitor.write("**Not** for visitors")
    await visitor.settled()
    session = await visitor.session()
    shop.site.session = session
    desk = await follow(await browser.new_context(), shop.site, shop.operators)
    for role in ("operator", "assistant", "system"):
        await shop.say(visitor, MARKDOWN, role)
    await expect(bubbles(desk, "system")).to_have_count(1)
    live = await bubbles(desk).evaluate_all("all => all.map((one) => one.innerHTML)")
    await desk.page.reload()
    await expect(bubbles(desk, "system").locator("strong")).to_have_count(1)
    loaded = await bubbles(desk).evaluate_all("all => all.map((one) => one.innerHTML)")
    await expect(visitor.rows("system").locator("strong")).to_have_count(1, timeout=20_000)
    seen = await visitor.rows().evaluate_all("all => all.map((one) => one.innerHTML)")
    assert loaded == live == seen[1:]
    assert live[0] == "**Not** for visitors"
    assert '<a href="https://example.com/points" target="_blank"' in live[-1]
    no_problems(visitor)
    assert desk.problems == []
    await desk.page.context.close()


async def test_a_reply_is_sent_once(
    context: BrowserContext, answered: Site, operators: Database
) -> None:
    """A double click is one message; it takes the conversation over."""
    desk = await follow(context, answered, operators)
    page = desk.page
    await expect(page.get_by_text("Sending takes the conversation over.")).to_be_visible()
    await page.get_by_label("Reply").fill("We are **here**.")
    await page.get_by_role("button", name="Send").dblclick()
    await expect(bubbles(desk, "operator").locator("strong")).to_have_text(["here"])
    await expect(page.get_by_label("Reply")).to_have_value("")
    await expect(page.get_by_text("People answer")).to_be_visible()
    await expect(page.get_by_text("Sending takes the conversation over.")).to_be_hidden()
    # The same words once more are another message; Shift+Enter is only a new line.
    await page.get_by_label("Reply").fill("We are **here**.")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("Really.")
    await page.keyboard.press("Enter")
    await page.keyboard.press("Enter")
    await expect(bubbles(desk, "operator")).to_have_count(2)
    said = ["We are **here**.", "We are **here**.\nReally."]
    assert await texts_of(answered, "operator") == said
    assert desk.problems == []


async def test_a_reply_that_fails_stays_in_the_field(
    context: BrowserContext, site: Site, operators: Database
) -> None:
    """Whether the request or the answer is lost: sent again, it is one message."""
    desk = await follow(context, site, operators)
    page, box = desk.page, desk.page.get_by_label("Reply")

    async def lose_request(route: Route) -> None:
        await route.abort()

    async def lose_answer(route: Route) -> None:
        await route.fetch()
        await route.abort()

    for number, lose in enumerate((lose_request, lose_answer)):
        await page.route("**/messages", lose)
        await box.fill(f"Hello {number}")
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
        await expect(box).to_have_value(f"Hello {number}")
        await page.unroute("**/messages")
        await page.get_by_role("button", name="Send").click()
        await expect(box).to_have_value("")
        await expect(page.get_by_role("alert")).to_have_text("")
    await expect(bubbles(desk, "operator")).to_have_text(["Hello 0", "Hello 1"])
    assert await texts_of(site, "operator") == ["Hello 0", "Hello 1"]
    # Signed out elsewhere: what was written is there again after signing in.
    await box.fill("Hello 2")
    await operators.execute("delete from signins")
    await page.get_by_role("button", name="Send").click()
    await page.wait_for_url("**/console/sign-in?next=**")
    assert desk.problems == []


async def test_closing_shows_everywhere(
    context: BrowserContext, site: Site, operators: Database
) -> None:
    """Who reads the conversation sees at once that nobody can write in it any more."""
    desk = await follow(context, site, operators)
    await conversations.close(operators, UUID(site.tenant_id), UUID(site.conversation_id))
    site.live.app.state.services.live.touch(site.tenant_id, site.conversation_id)
    await expect(desk.page.get_by_text("The conversation is closed.")).to_be_visible()
    await expect(desk.page.get_by_label("Reply")).to_be_hidden()
    await expect(desk.page.locator("#status")).to_have_text("closed")
    assert desk.problems == []


async def test_the_list_is_live(context: BrowserContext, site: Site, operators: Database) -> None:
    """New rows and new words by themselves: the filters, the focus and the view stay."""
    for number in range(20):
        await site.open(visitor_id=f"v{number}")
        await site.send(f"question {number}")
    desk = await Desk.open(context, site.live, operators)
    page = desk.page
    await desk.go(f"/tenants/{site.slug}/conversations?status=open")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    await page.get_by_label("Text").fill("half a sear")
    link = page.get_by_role("link", name="question 3", exact=True)
    await link.focus()
    await link.scroll_into_view_if_needed()
    top = await link.evaluate("one => one.getBoundingClientRect().top")
    await site.open(visitor_id="new")
    await site.send("something new")
    rows = page.locator("#results .talk")
    await expect(rows.first).to_contain_text("something new")
    await expect(rows).to_have_count(21)
    await expect(link).to_be_focused()
    assert abs(await link.evaluate("one => one.getBoundingClientRect().top") - top) < 2
    await expect(page.get_by_label("Text")).to_have_value("half a sear")
    # A row that changes under the focus keeps it.
    newest = page.get_by_role("link", name="something new")
    await newest.focus()
    await site.send("and newer")
    await expect(rows.first).to_contain_text("and newer")
    await expect(page.get_by_role("link", name="and newer")).to_be_focused()
    await expect(rows).to_have_count(21)
    await conversations.close(operators, UUID(site.tenant_id), UUID(site.conversation_id))
    site.live.app.state.services.live.touch(site.tenant_id, site.conversation_id)
    await expect(rows).to_have_count(20)
    assert desk.problems == []


# Looks at every frame whether a message is on the screen twice, or out of order.
WATCH_ORDER = """
window.disorder = [];
const watch = () => {
  const texts = [...document.querySelectorAll("#log .bubble")].map((one) => one.textContent);
  if (texts.some((text, index) => text !== `message ${index}`)) disorder.push(texts.join());
  requestAnimationFrame(watch);
};
watch();
"""


async def test_the_transcript_in_a_storm(
    context: BrowserContext, site: Site, operators: Database
) -> None:
    """Connections are cut again and again: every message once and in order, at every moment."""
    async with open_wire(site.live.url) as wire:
        await context.add_init_script(WATCH_ORDER)
        desk = await Desk.open(context, replace(site.live, url=wire.url), operators)
        page = desk.page
        await desk.go(f"/tenants/{site.slug}/conversations/{site.conversation_id}")
        await expect(page.get_by_text("live", exact=True)).to_be_visible()
        for number in range(60):
            await site.send(f"message {number}")
            await asyncio.sleep(0.05)
            if number % 6 == 3:
                wire.cut()
            if number in {20, 40}:
                wire.unplugged = True
                wire.cut()
                await asyncio.sleep(1.5)
                wire.unplugged = False
        await expect(bubbles(desk)).to_have_count(60, timeout=30_000)
        await expect(page.get_by_text("live", exact=True)).to_be_visible()
        assert await page.evaluate("disorder") == []
        assert desk.problems == []
