"""Everybody can use it: screen readers, keyboards, small screens, any colour, either direction."""

from typing import Any, Literal

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, expect

from e2e.shop import Shop
from e2e.speaker import Speaker
from e2e.visitor import Visitor, no_problems

MODES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "light": ({"color_scheme": "light"}, {}),
    "dark": ({"color_scheme": "dark"}, {}),
    "right-to-left": ({}, {"lang": "ar", "direction": "rtl"}),
    "mobile": ({"viewport": {"width": 390, "height": 780}, "is_mobile": True}, {}),
    "forced colours": ({"forced_colors": "active"}, {}),
}
LOOKS: dict[str, object] = {
    "title": "Shop",
    "subtitle": "We answer at once",
    "color": "#ffd23f",
    "color_text": "#ffffff",
    "suggestions": ["Where is my parcel?"],
    "privacy_url": "https://example.com/privacy",
}


# Half way through its opening, the panel is half transparent.
ANIMATIONS_END = """
() => Promise.all([...document.querySelectorAll("*")]
    .flatMap((element) => element.shadowRoot?.getAnimations() ?? [])
    .filter((animation) => animation.effect.getTiming().iterations !== Infinity)
    .map((animation) => animation.finished))
"""


async def violations(visitor: Visitor) -> list[str]:
    await visitor.page.evaluate(ANIMATIONS_END)
    results = await Axe().run(visitor.page)
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in results.response["violations"]]


@pytest.mark.parametrize("mode", MODES)
async def test_axe_finds_nothing(browser: Browser, shop: Shop, mode: str) -> None:
    """0 violations: closed, empty, while an answer is awaited and grows, in talk, while a message
    waits and after one has failed.
    The tenant's colours cannot be read on each other, and must still come out readable.
    """
    options, page = MODES[mode]
    await shop.dress(LOOKS)
    context = await browser.new_context(**options)
    # The checker is a script of its own, which the strict policy would refuse.
    visitor = await Visitor.arrive(context, shop.page(strict=False, **page))
    assert await violations(visitor) == []
    await visitor.launcher.click()
    await expect(visitor.panel).to_contain_text("Where is my parcel?")
    assert await violations(visitor) == []
    speaker = Speaker.take_over(shop.live)
    await visitor.write("hello")
    await expect(visitor.page.locator("hlas-chat .typing")).to_have_count(1)
    await expect(visitor.page.locator("hlas-chat .stop")).to_be_visible()
    assert await violations(visitor) == []
    speaker.say("Good day. I am **just** about")
    await expect(visitor.rows("assistant").last).to_contain_text("about")
    assert await violations(visitor) == []
    speaker.finish()
    await visitor.settled()
    await shop.say(
        visitor, "An operator with `code`, a [link](https://example.com)\n\n- and a list"
    )
    await expect(visitor.rows("operator")).to_have_count(1, timeout=20_000)
    assert await violations(visitor) == []
    await context.set_offline(True)
    await visitor.write("waiting")
    await expect(visitor.page.locator("hlas-chat .waiting")).to_have_count(1)
    assert await violations(visitor) == []
    # In a turn of its own: an attempt that is under way would overwrite it.
    await visitor.page.evaluate(
        """() => navigator.locks.request("hlas:send", () => {
          const name = Object.keys(localStorage).find((one) => one.startsWith("hlas:out:"));
          localStorage[name] = JSON.stringify({...JSON.parse(localStorage[name]), failed: true});
          dispatchEvent(new Event("storage"));
        })"""
    )
    await expect(visitor.page.locator("hlas-chat .failed")).to_have_count(1)
    assert await violations(visitor) == []
    await context.close()


async def test_the_keyboard_does_everything(context: BrowserContext, shop: Shop) -> None:
    """Open, send, move through, close: no mouse; the focus comes back where it was."""
    await shop.dress(LOOKS)
    visitor = await shop.arrive(context)
    page = visitor.page
    await page.keyboard.press("Tab")  # the page's link
    await page.keyboard.press("Tab")
    await expect(visitor.launcher).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(visitor.field).to_be_focused()
    await expect(page.locator("hlas-chat .chips button")).to_be_visible()
    await page.keyboard.press("Shift+Tab")
    await page.keyboard.press("Enter")
    await expect(visitor.rows("user")).to_have_text(["Where is my parcel?"])
    await expect(visitor.field).to_be_focused()
    await page.keyboard.type("line one")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("line two")
    await page.keyboard.press("Enter")
    await expect(visitor.rows("user").last).to_have_text("line one\nline two", use_inner_text=True)
    await visitor.settled()
    order = []
    await page.keyboard.press("Tab")
    for _ in range(3):
        name = (
            "hlas.shadowRoot.activeElement?.ariaLabel ?? hlas.shadowRoot.activeElement?.textContent"
        )
        order.append(await page.evaluate(name))
        await page.keyboard.press("Shift+Tab")
    assert order == ["Send", "Write a message…", "Shop"]
    await page.keyboard.press("Escape")
    await expect(visitor.panel).to_be_hidden()
    await expect(visitor.launcher).to_be_focused()
    no_problems(visitor)


@pytest.mark.parametrize("colours", ["none", "active"])
async def test_the_field_has_one_ring(
    browser: Browser, shop: Shop, colours: Literal["none", "active"]
) -> None:
    """Around the whole form, none inside it; an outline, which forced colours keep."""
    context = await browser.new_context(forced_colors=colours)
    visitor = await shop.arrive(context)
    await visitor.open()
    await expect(visitor.field).to_be_focused()
    await expect(visitor.field).to_have_css("outline-style", "none")
    form = visitor.page.locator("hlas-chat form")
    await expect(form).to_have_css("outline-style", "solid")
    await expect(form).to_have_css("outline-width", "2px")
    await context.close()


async def test_the_launcher_is_a_circle(context: BrowserContext, shop: Shop) -> None:
    """As wide as high, open and closed; with a word on it, it is as wide as the word needs."""
    visitor = await shop.arrive(context)
    for _ in range(2):
        box = await visitor.launcher.bounding_box()
        assert box is not None
        assert (box["width"], box["height"]) == (60, 60)
        await visitor.launcher.click()
    visitor = await shop.arrive(context, 'data-launcher="Ask us"')
    box = await visitor.launcher.bounding_box()
    assert box is not None
    assert box["width"] > 100


async def test_what_screen_readers_get(context: BrowserContext, shop: Shop) -> None:
    """A log that speaks new messages once, with who says them; a labelled dialog; a status."""
    visitor = await shop.arrive(context)
    await visitor.open()
    log = visitor.page.get_by_role("log")
    await expect(log).to_have_accessible_name("Chat with us")
    await expect(visitor.page.get_by_role("dialog")).to_have_accessible_name("Chat with us")
    await expect(visitor.page.get_by_role("status")).to_have_count(1)
    await visitor.page.evaluate(
        """() => {
          window.added = [];
          const log = hlas.shadowRoot.querySelector("[role=log]");
          new MutationObserver((changes) => changes.forEach((change) =>
            change.addedNodes.forEach((node) => added.push(node.className.split(" ")[1]))))
            .observe(log, { childList: true });
        }"""
    )
    await visitor.write("hello")
    await visitor.settled()
    await visitor.page.wait_for_timeout(500)
    added = await visitor.page.evaluate("added")
    assert sorted(added) == ["assistant", "assistant", "day", "user"]  # one of them: the dots
    await expect(log.locator(".user .who")).to_have_text("You")
    await expect(log.locator(".assistant:not(.typing) .who").last).to_have_text("Assistant")


async def test_on_a_phone_the_panel_fills_the_screen(browser: Browser, shop: Shop) -> None:
    """Full screen, modal, no zoom on focus, and smaller while the keyboard is up."""
    context = await browser.new_context(
        viewport={"width": 390, "height": 780},
        is_mobile=True,
        has_touch=True,
        reduced_motion="reduce",
    )
    visitor = await shop.arrive(context)
    await visitor.launcher.tap()
    await expect(visitor.panel).to_be_visible()
    box = await visitor.panel.bounding_box()
    assert box is not None
    assert (box["x"], box["y"], box["width"], box["height"]) == (0, 0, 390, 780)
    assert await visitor.panel.evaluate("panel => panel.matches(':modal')")
    size = await visitor.field.evaluate("field => parseFloat(getComputedStyle(field).fontSize)")
    assert size >= 16
    await visitor.page.evaluate(
        """() => {
          Object.defineProperty(visualViewport, "height", { value: 400 });
          visualViewport.dispatchEvent(new Event("resize"));
        }"""
    )
    box = await visitor.panel.bounding_box()
    assert box is not None
    assert box["height"] == 400
    await visitor.page.reload()
    await expect(visitor.panel).to_be_hidden()  # a page is never covered by itself
    no_problems(visitor)
    await context.close()


async def test_an_input_method_may_use_enter(context: BrowserContext, shop: Shop) -> None:
    """The Enter that ends a composition sends nothing."""
    visitor = await shop.arrive(context)
    await visitor.open()
    await visitor.field.fill("にほ")
    await visitor.field.evaluate(
        """field => field.dispatchEvent(new KeyboardEvent("keydown",
          { key: "Enter", isComposing: true, bubbles: true, composed: true }))"""
    )
    await expect(visitor.rows("user")).to_have_count(0)
    await visitor.field.press("Enter")
    await expect(visitor.rows("user")).to_have_count(1)


@pytest.mark.parametrize(("language", "words"), [("cs", "Napište nám"), ("en-GB", "Chat with us")])
async def test_it_speaks_the_pages_language(
    context: BrowserContext, shop: Shop, language: str, words: str
) -> None:
    visitor = await Visitor.arrive(context, shop.page(lang=language))
    await visitor.open()
    await expect(visitor.panel).to_contain_text(words)


async def test_page_attributes_win_over_the_tenants_looks(
    context: BrowserContext, shop: Shop
) -> None:
    """data- attributes first, then ui_config, then the built-in words."""
    await shop.dress({"title": "Tenant", "position": "left", "subtitle": "Tenant", "z_index": 5})
    visitor = await shop.arrive(context, 'data-title="Page" data-position="right" data-z-index="9"')
    await visitor.open()
    header = visitor.page.locator("hlas-chat header")
    await expect(header).to_have_text("PageTenant")
    box = await visitor.launcher.bounding_box()
    assert box is not None
    assert box["x"] > 600
    assert await visitor.page.evaluate("getComputedStyle(hlas).zIndex") == "9"
