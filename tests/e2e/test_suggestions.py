"""What follows an answer: suggestions, None of these with a contact form, and thumbs.

These tests fail with each of these defects: buttons under an older message, a suggestion that is
sent twice, buttons or a form that take the focus with them, text that is read aloud twice, thumbs
that are read aloud, typed text that a failure discards, a double submission, a rating that is
pressed but not stored, texts in another language than the page's.
"""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, Locator, Page, Request, expect

from e2e.shop import Shop
from e2e.visitor import Visitor, no_problems
from factories import Live
from hlas.agent import Answer, Listener, Question
from hlas.store.db import Row

ASKED = "Can I park there?"
MEANT = ("Is there parking for visitors?", "Kde zaparkuji kolo?", "Do you deliver to a car park?")
UNSURE = Answer("I am not sure that I understand.", "fallback", 0.3, suggestions=MEANT)
SURE = Answer("Yes, behind the house.", "knowledge", 0.9)
EMAIL = "jana@example.com"
MODES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "light": ({"color_scheme": "light"}, {}),
    "dark": ({"color_scheme": "dark"}, {}),
    "right-to-left": ({}, {"lang": "ar", "direction": "rtl"}),
    "phone": ({"viewport": {"width": 390, "height": 780}, "is_mobile": True}, {}),
    "zoom 200%": ({"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2}, {}),
    "forced colours": ({"forced_colors": "active"}, {}),
}
# What screen readers announce: what is added where it is not off.
WATCH = """
() => {
  window.said = [];
  const live = (node) => node?.closest?.("[aria-live], [role=log]");
  new MutationObserver((changes) => changes.forEach((change) =>
    change.addedNodes.forEach((node) => {
      const region = live(node) ?? live(node.parentElement);
      const labels = [...(node.querySelectorAll?.("[aria-label]") ?? [])];
      const text = [node.textContent, ...labels.map((one) => one.ariaLabel)].join(" ").trim();
      if (region && region.ariaLive !== "off" && text) said.push(text);
    })))
    .observe(hlas.shadowRoot, { childList: true, subtree: true });
}
"""


class Clerk:
    """Is sure of a suggestion's words alone."""

    def __init__(self, live: Live) -> None:
        live.app.state.services.runner._agent = self

    async def answer(self, question: Question, listener: Listener) -> Answer:
        return SURE if question.text in MEANT else UNSURE


@pytest_asyncio.fixture
async def clerk(shop: Shop) -> Clerk:
    return Clerk(shop.live)


def offered(visitor: Visitor) -> Locator:
    return visitor.page.locator("hlas-chat [role=log] > .chips > button")


def form(visitor: Visitor) -> Locator:
    return visitor.page.locator("hlas-chat form.card")


def thumb(visitor: Visitor, name: str) -> Locator:
    return visitor.page.get_by_role("button", name=name, exact=True)


async def ask(context: BrowserContext, shop: Shop, **page: Any) -> Visitor:
    """A visitor whose question was not understood."""
    visitor = await Visitor.arrive(context, shop.page(**page))
    await visitor.open()
    await visitor.page.evaluate(WATCH)
    await visitor.write(ASKED)
    await expect(offered(visitor)).to_have_count(4)
    await visitor.settled()
    return visitor


async def read_focus(page: Page) -> str:
    name = "(one => one?.ariaLabel || one?.name || one?.textContent)(hlas.shadowRoot.activeElement)"
    return str(await page.evaluate(name))


async def read_one(shop: Shop, columns: str, tables: str = "conversations c") -> Row:
    row = await shop.operators.one(
        f"select {columns} from {tables} where c.tenant_id = $1::text::uuid", shop.site.tenant_id
    )
    assert row is not None
    return row


def count(visitor: Visitor, ending: str) -> list[Request]:
    return [
        one
        for one in visitor.requests
        if one.url.endswith(ending) and one.method in {"POST", "PUT"}
    ]


async def test_by_keyboard(context: BrowserContext, shop: Shop, clerk: Clerk) -> None:
    """Suggestions are buttons after the message; one is sent word for word, the others go, and the
    focus is in the field. Each text is announced once.
    """
    visitor = await ask(context, shop)
    page = visitor.page
    none = "None of these"
    await expect(offered(visitor)).to_have_text([*MEANT, none])
    said = await page.evaluate("said")
    assert [sum(text in one for one in said) for text in (UNSURE.text, *MEANT, none)] == [1] * 5
    await expect(visitor.field).to_be_focused()
    order = []
    for _ in range(4):
        await page.keyboard.press("Shift+Tab")
        order.append(await read_focus(page))
    assert order == [none, *MEANT[::-1]]
    await page.keyboard.press("Enter")
    await expect(visitor.rows("user")).to_have_text([ASKED, MEANT[0]])
    await expect(offered(visitor)).to_have_count(0)
    await expect(visitor.field).to_be_focused()
    await expect(visitor.rows("assistant").last).to_have_text(str(SURE.text))
    await visitor.settled()
    await expect(thumb(visitor, "Helpful")).to_have_count(1)
    # Not word by word, as from a stream, but at once.
    await shop.say(visitor, "In the yard, too.", "assistant", {"source": "knowledge"})
    await expect(thumb(visitor, "Helpful")).to_have_count(2)
    said = await page.evaluate("said")
    for text in (str(SURE.text), "In the yard, too."):
        assert sum(text in one for one in said) == 1
    assert not any("elpful" in one for one in said)
    assert await shop.messages("user") == [ASKED, MEANT[0]]
    no_problems(visitor)


async def test_once_and_in_every_tab(context: BrowserContext, shop: Shop, clerk: Clerk) -> None:
    """After a reload and in another tab the same buttons stand once, under the last message; a
    choice is sent once, whichever tabs it is made in.
    """
    visitor = await ask(context, shop)
    await visitor.write("And with a trailer?")
    await expect(visitor.rows("user")).to_have_count(2)
    await visitor.settled()
    await expect(offered(visitor)).to_have_text([*MEANT, "None of these"])
    await visitor.page.reload()
    other = await Visitor.arrive(context, shop.page(path="/other"))
    for tab in (visitor, other):
        await expect(offered(tab)).to_have_text([*MEANT, "None of these"])
        await expect(tab.page.locator("hlas-chat [role=log] > *").last).to_have_class("chips")
    # Held up, it learns of nothing, and its button is still there.
    await other.page.evaluate(
        """() => {
          addEventListener("storage", (event) => event.stopImmediatePropagation(), true);
          window.button = hlas.shadowRoot.querySelector("[role=log] > .chips > button");
        }"""
    )
    await offered(visitor).first.dblclick()
    await other.page.evaluate("button.click(), button.click()")
    for tab in (visitor, other):
        await expect(tab.rows("user")).to_have_count(3)
        await expect(offered(tab)).to_have_count(0)
        await tab.settled()
    assert await shop.messages("user") == [ASKED, "And with a trailer?", MEANT[0]]
    no_problems(visitor, other)


async def test_none_of_these(context: BrowserContext, shop: Shop, clerk: Clerk) -> None:
    """A form asks for the contact, with a line on what for; a failure keeps what was typed, a
    double submission is one, and thanks stay after a reload and in other tabs.
    """
    await shop.dress({"privacy_url": "https://example.com/privacy"})
    visitor = await ask(context, shop)
    page = visitor.page
    await offered(visitor).last.press("Enter")
    field = page.get_by_label("Your e-mail for our answer")
    await expect(field).to_be_focused()
    await expect(offered(visitor)).to_have_count(0)
    await expect(form(visitor)).to_contain_text("We will use it only to answer you. Privacy")
    # The focus reads it.
    assert not any("e-mail" in one for one in await page.evaluate("said"))
    for wrong in ("", "jana", "jana@example"):
        await field.fill(wrong)
        await field.press("Enter")
        assert await field.evaluate("field => !field.checkValidity()")
    assert count(visitor, "/contact") == []
    await field.fill(EMAIL)
    await context.set_offline(True)
    await field.press("Enter")
    await expect(form(visitor).get_by_role("alert")).to_have_text("Not sent")
    await expect(field).to_have_value(EMAIL)
    await context.set_offline(False)
    other = await Visitor.arrive(context, shop.page(path="/other"))
    await expect(form(other)).to_be_visible()
    sent = len(count(visitor, "/contact"))
    await form(visitor).get_by_role("button", name="Send", exact=True).dblclick()
    for tab in (visitor, other):
        await expect(tab.page.get_by_role("log")).to_contain_text("Thank you!")
        await expect(form(tab)).to_have_count(0)
    assert len(count(visitor, "/contact")) == sent + 1
    await expect(visitor.field).to_be_focused()
    assert (await page.evaluate("said"))[-1] == "Thank you!"
    row = await read_one(
        shop,
        "c.contact, c.person_wanted_at, u.seq, u.reason",
        "conversations c left join unanswered u on u.conversation_id = c.id",
    )
    assert row["contact"] == {"email": EMAIL}
    assert row["person_wanted_at"] is not None
    assert (row["seq"], row["reason"]) == (1, "none_of_these")
    await page.reload()
    await expect(page.get_by_text("Thank you!")).to_have_count(1)
    await expect(offered(visitor)).to_have_count(0)
    # Known already: not asked for again.
    await visitor.write("And where?")
    await offered(visitor).last.click()
    await expect(page.get_by_text("Thank you!")).to_have_count(2)
    await expect(form(visitor)).to_have_count(0)
    no_problems(visitor, other)


async def test_thumbs(context: BrowserContext, shop: Shop, clerk: Clerk) -> None:
    """An answer is rated once, with a reason where it did not help; the visitor may change their
    mind, every tab shows it, and what failed is not pressed. Suggestions are not rated.
    """
    visitor = await ask(context, shop)
    page = visitor.page
    await expect(thumb(visitor, "Helpful")).to_have_count(0)
    await offered(visitor).first.click()
    await visitor.settled()
    up, down = thumb(visitor, "Helpful"), thumb(visitor, "Not helpful")
    await context.set_offline(True)
    await up.click()
    await expect(up).to_be_focused()
    await context.set_offline(False)
    await expect(up).to_have_attribute("aria-pressed", "false")
    await down.press("Enter")
    await expect(down).to_have_attribute("aria-pressed", "true")
    await expect(down).to_be_focused()
    assert any("What is wrong?" in one for one in await page.evaluate("said"))
    await page.keyboard.press("Tab")
    await expect(page.get_by_label("What is wrong?")).to_be_focused()
    await page.keyboard.type("It is closed.")
    # Pressed again, it changes nothing.
    await down.click()
    await expect(page.get_by_label("What is wrong?")).to_have_value("It is closed.")
    await page.get_by_label("What is wrong?").press("Enter")
    await expect(form(visitor)).to_have_count(0)
    await expect(page.get_by_text("Thank you!")).to_have_count(1)
    await expect(visitor.field).to_be_focused()
    tables = "conversations c join ratings r on r.conversation_id = c.id"
    row = await read_one(shop, "r.rating, r.comment, r.created_at", tables)
    assert (row["rating"], row["comment"]) == ("down", "It is closed.")
    await page.reload()
    other = await Visitor.arrive(context, shop.page(path="/other"))
    for tab in (visitor, other):
        await expect(thumb(tab, "Not helpful")).to_have_attribute("aria-pressed", "true")
        await expect(form(tab)).to_have_count(0)
    await thumb(other, "Helpful").click()
    for tab in (visitor, other):
        await expect(thumb(tab, "Helpful")).to_have_attribute("aria-pressed", "true")
        await expect(thumb(tab, "Not helpful")).to_have_attribute("aria-pressed", "false")
    changed = await read_one(shop, "r.rating, r.comment, r.created_at", tables)
    assert tuple(changed) == ("up", "", row["created_at"])
    # At once: the last one wins.
    answered: list[int] = []
    page.on(
        "response", lambda one: answered.append(one.status) if one.request.method == "PUT" else None
    )
    await page.evaluate(
        """() => {
          const thumbs = document.querySelector("hlas-chat").shadowRoot;
          for (const name of ["down", "up", "down"])
            thumbs.querySelector(`[aria-pressed][name=${name}]`).click();
        }"""
    )
    async with asyncio.timeout(20):
        while len([status for status in answered if status == 204]) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await expect(thumb(visitor, "Not helpful")).to_have_attribute("aria-pressed", "true")
    assert (await read_one(shop, "r.rating", tables))["rating"] == "down"
    no_problems(visitor, other)


TEXTS: dict[str, object] = {
    "title": "Everybody",
    "suggestions": ["Hello?"],
    "texts": {
        "cs": {"title": "Obchod", "greeting": "Vítejte!", "suggestions": ["Kdy máte otevřeno?"]},
        "en": {"placeholder": "Ask us"},
    },
}


@pytest.mark.parametrize(
    ("lang", "title", "greeting", "placeholder", "suggestion"),
    [
        ("cs-CZ", "Obchod", "Vítejte!", "Napište zprávu…", "Kdy máte otevřeno?"),
        ("sk", "Obchod", "Vítejte!", "Napište zprávu…", "Kdy máte otevřeno?"),
        ("en", "Everybody", "Hello! How can we help you?", "Ask us", "Hello?"),
        ("de", "Everybody", "Hello! How can we help you?", "Ask us", "Hello?"),
    ],
)
async def test_texts_for_each_language(
    context: BrowserContext,
    shop: Shop,
    lang: str,
    title: str,
    greeting: str,
    placeholder: str,
    suggestion: str,
) -> None:
    """The owner's texts for the page's language, then those for all, then the widget's own; for a
    language that it does not have, those of the browser's.
    """
    await shop.dress(TEXTS)
    visitor = await Visitor.arrive(context, shop.page(lang=lang))
    await visitor.open()
    await expect(visitor.page.locator("hlas-chat header strong")).to_have_text(title)
    await expect(visitor.rows("assistant")).to_have_text([greeting])
    await expect(visitor.field).to_have_attribute("placeholder", placeholder)
    await expect(visitor.page.locator("hlas-chat .chips button")).to_have_text([suggestion])
    no_problems(visitor)


async def find_violations(visitor: Visitor) -> list[str]:
    results = await Axe().run(visitor.page)
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in results.response["violations"]]


async def require_room(visitor: Visitor) -> None:
    """Nothing is cut off sideways, and targets are large enough."""
    log = visitor.page.get_by_role("log")
    assert await log.evaluate("log => log.scrollWidth - log.clientWidth") == 0
    for button in await log.get_by_role("button").all():
        box = await button.bounding_box()
        assert box is not None
        assert min(box["width"], box["height"]) >= 24


@pytest.mark.parametrize("mode", MODES)
async def test_axe_finds_nothing(browser: Browser, shop: Shop, clerk: Clerk, mode: str) -> None:
    """0 violations, nothing cut off: suggestions, an invalid contact, a failure, thumbs."""
    options, page = MODES[mode]
    await shop.dress({"color": "#ffd23f", "privacy_url": "https://example.com/privacy"})
    # Half way through its opening, the panel is half transparent.
    context = await browser.new_context(**options, reduced_motion="reduce", locale="en-GB")
    visitor = await ask(context, shop, strict=False, **page)
    await expect(offered(visitor).last).to_be_in_viewport()
    assert await find_violations(visitor) == []
    await require_room(visitor)
    await offered(visitor).last.click()
    await context.set_offline(True)
    await form(visitor).locator("input").fill(EMAIL)
    await form(visitor).locator("button").click()
    await expect(form(visitor).get_by_role("alert")).to_have_text("Not sent")
    assert await find_violations(visitor) == []
    await require_room(visitor)
    await context.set_offline(False)
    await visitor.write(MEANT[0])
    await thumb(visitor, "Not helpful").click()
    await expect(form(visitor)).to_have_count(2)
    assert await find_violations(visitor) == []
    await require_room(visitor)
    await context.close()


async def test_hostile_suggestions(context: BrowserContext, shop: Shop) -> None:
    """A question of the knowledge is text of bounded width, in its own direction."""
    clerk = Clerk(shop.live)
    hostile = '<img src=x onerror="window.hasRun = 1">\u202e' + "x" * 400
    unsure = replace(UNSURE, suggestions=(hostile, "مرحبا؟", "`code` **bold**"))

    async def answer(question: Question, listener: Listener) -> Answer:
        await asyncio.sleep(0)
        return unsure

    clerk.answer = answer  # type: ignore[method-assign]
    visitor = await ask(context, shop)
    await expect(offered(visitor)).to_have_text([*unsure.suggestions, "None of these"])
    await require_room(visitor)
    assert await visitor.page.evaluate("window.hasRun") is None
    await offered(visitor).first.click()
    await expect(visitor.rows("user")).to_have_count(2)
    await visitor.settled()
    assert await shop.messages("user") == [ASKED, hostile]
    no_problems(visitor)
