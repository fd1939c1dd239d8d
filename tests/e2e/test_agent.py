"""What a language model's answers bring to the widget: sources, tools at work, consent, a notice.

These tests fail with each of these defects: a mark that links to a source that is not there, a
`javascript:` address in a link, marks that are read aloud, a tool's name as the name of a text, a
label that stays after its tool, a label that is announced for each frame, a decision that is sent
twice or without its id, buttons that come back, a notice under answers that no model wrote.
"""

from typing import Any, cast
from uuid import uuid4

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, Locator, expect

from e2e.console import Desk
from e2e.proxy import Fault, Seen, open_proxy
from e2e.shop import Shop
from e2e.speaker import Speaker
from e2e.visitor import Visitor, no_problems
from hlas.agent import Confirmation, Source

TEXT = (
    "We deliver **within two days [1]**, and free of charge from 1 000 CZK [2][3]. "
    "Returns take a week [9], see `list[1]` and [1](https://example.com/one)."
)
SOURCES = (
    Source(1, "Delivery", "https://example.com/delivery"),
    Source(2, "Prices of delivery, of parcels that are large, and of all the others " * 3, ""),
    Source(3, "Obchodní podmínky", "HTTP://example.com/terms?a=1&b=2"),
)
RAN = "window.ran = () => { window.hasRun = true; }"
HOSTILE = '<img src=x onerror=ran()>"><script>ran()</script>\u202e'

# Every label of the agent's row and every announcement.
WATCH = """
() => {
  window.labels = [];
  window.said = [];
  const root = hlas.shadowRoot;
  new MutationObserver(() => {
    const label = root.querySelector(".typing.assistant > .bubble")?.textContent;
    if (label && labels.at(-1) !== label) labels.push(label);
  }).observe(root.querySelector("[role=log]"), { childList: true, subtree: true });
  new MutationObserver((changes) => changes.forEach((change) =>
    change.addedNodes.forEach((node) => said.push(node.textContent.trim()))))
    .observe(root.querySelector("[aria-live=polite]"), { childList: true });
}
"""
MODES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "light": ({"color_scheme": "light"}, {}),
    "dark": ({"color_scheme": "dark"}, {}),
    "right-to-left": ({}, {"lang": "ar", "direction": "rtl"}),
    "mobile": ({"viewport": {"width": 390, "height": 780}, "is_mobile": True}, {}),
    "forced colours": ({"forced_colors": "active"}, {}),
}


@pytest_asyncio.fixture
async def speaker(shop: Shop) -> Speaker:
    return Speaker.take_over(shop.live)


def answer(visitor: Visitor) -> Locator:
    return visitor.page.locator("hlas-chat .assistant:not(.typing) > .bubble").last


def label(visitor: Visitor) -> Locator:
    return visitor.page.locator("hlas-chat .typing > .bubble")


def consent(visitor: Visitor) -> Locator:
    return visitor.page.locator("hlas-chat fieldset")


def notice(visitor: Visitor) -> Locator:
    return visitor.page.locator("hlas-chat footer > p")


def press(visitor: Visitor, name: str) -> Locator:
    return visitor.page.get_by_role("button", name=name, exact=True)


async def ask(context: BrowserContext, shop: Shop, api: str = "", **page: Any) -> Visitor:
    """A visitor with an open panel whose question is acknowledged."""
    visitor = await Visitor.arrive(context, shop.page(api=api, **page))
    await visitor.open()
    await visitor.page.evaluate(WATCH)
    await visitor.write("How do you deliver?")
    await expect(label(visitor)).to_have_count(1)
    return visitor


def begin_tool(speaker: Speaker, name: str, call: str = "c1") -> None:
    speaker.show("tool-input-available", toolCallId=call, toolName=name, input={})


def end_tool(speaker: Speaker, call: str = "c1") -> None:
    speaker.show("tool-output-available", toolCallId=call, output={})


def book(**arguments: object) -> Confirmation:
    return Confirmation(str(uuid4()), "Book a visit", arguments or {"day": "Monday"})


async def propose(visitor: Visitor, speaker: Speaker, call: Confirmation) -> None:
    """The agent asks for consent."""
    speaker.say("Shall I book it?")
    speaker.finish(confirmation=call)
    await expect(consent(visitor)).to_be_visible()
    await visitor.settled()


async def read_decisions(shop: Shop) -> list[tuple[str, dict[str, str]]]:
    """Stored decisions, with all metadata but the reference."""
    rows = await shop.operators.all(
        "select content, meta - 'ref' as meta from messages "
        "where tenant_id = $1::text::uuid and role = 'user' and meta ?| '{confirm,decline}' "
        "order by seq",
        shop.site.tenant_id,
    )
    return [(row["content"], cast("dict[str, str]", row["meta"])) for row in rows]


async def violations(visitor: Visitor) -> list[str]:
    results = await Axe().run(visitor.page)
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in results.response["violations"]]


async def outline(bubble: Locator) -> list[tuple[str, str, str]]:
    """The links and marks of an answer: element, address, text."""
    found = await bubble.evaluate(
        """bubble => [...bubble.querySelectorAll("sup > *, li, li > a")].map((node) =>
          [node.localName, node.getAttribute("href") ?? "", node.textContent])"""
    )
    return [tuple(one) for one in found]


async def test_an_answer_with_sources(
    context: BrowserContext, shop: Shop, speaker: Speaker
) -> None:
    """Marks link to the sources below the answer; other numbers stay text; so after a reload."""
    visitor = await ask(context, shop)
    speaker.say(TEXT[:-1])
    await expect(answer(visitor)).to_contain_text("take a week")
    # While the text grows its sources are not known: marks, but no links.
    await expect(answer(visitor).locator("sup")).to_have_text(["1", "2", "3", "9"])
    await expect(answer(visitor).locator("sup a, .sources")).to_have_count(0)
    speaker.say(TEXT[-1])
    speaker.finish(sources=SOURCES)
    await visitor.settled()
    first, second, third = SOURCES
    wanted = [
        ("a", first.url, "1"),
        ("span", "", "2"),
        ("a", third.url, "3"),
        ("li", "", f"1{first.title}"),
        ("a", first.url, first.title),
        ("li", "", f"2{second.title}"),
        ("li", "", f"3{third.title}"),
        ("a", third.url, third.title),
    ]
    assert await outline(answer(visitor)) == wanted
    text = await answer(visitor).locator("p").inner_text()
    assert "take a week [9], see list[1] and 1." in text
    rels = await answer(visitor).locator("a").evaluate_all("all => all.map((a) => a.rel+a.target)")
    assert set(rels) == {"noopener noreferrer nofollow_blank"}
    # A title stands there once; a mark's name tells what its number means.
    await expect(answer(visitor).get_by_role("link", name="Delivery", exact=True)).to_have_count(1)
    await expect(answer(visitor).get_by_role("link", name="Sources: 1")).to_have_count(1)
    await expect(answer(visitor).get_by_role("list", name="Sources")).to_have_count(1)
    said = " ".join(await visitor.page.evaluate("said"))
    assert "two days, and free of charge from 1 000 CZK. Returns take a week, see" in said
    assert "Delivery" not in said
    await visitor.page.reload()
    await expect(answer(visitor).locator(".sources")).to_be_visible()
    assert await outline(answer(visitor)) == wanted
    no_problems(visitor)


async def test_what_the_agent_does(context: BrowserContext, shop: Shop, speaker: Speaker) -> None:
    """Before its words the agent thinks or uses tools; every tab shows it, each says it once."""
    visitor = await ask(context, shop)
    other = await Visitor.arrive(context, shop.page(path="/other"))
    for tab in (visitor, other):
        await expect(label(tab)).to_have_text("Thinking…")
    for name, words in (
        ("search_knowledge", "Searching…"),
        ("get_product", "Looking up products…"),
        ("get_localities", "Looking it up…"),
        ("search_knowledge", "Searching…"),
        ("title", "Looking it up…"),
        ("constructor", "Looking it up…"),
        (HOSTILE, "Looking it up…"),
    ):
        begin_tool(speaker, name)
        for tab in (visitor, other):
            await expect(label(tab)).to_have_text(words)
        end_tool(speaker)
        await expect(label(visitor)).to_have_text("Thinking…")
    # Two at once: the wait is over when both have ended.
    begin_tool(speaker, "search_knowledge", "a")
    begin_tool(speaker, "get_product", "b")
    end_tool(speaker, "a")
    await expect(label(visitor)).to_have_text("Looking up products…")
    end_tool(speaker, "b")
    await expect(label(visitor)).to_have_text("Thinking…")
    await expect(visitor.page.locator("hlas-chat .typing")).to_have_attribute("aria-live", "off")
    assert await visitor.page.evaluate("said") == [
        "Thinking…",
        "Searching…",
        "Looking up products…",
        "Looking it up…",
    ]
    no_problems(visitor, other)


async def test_a_tool_in_mid_answer(context: BrowserContext, shop: Shop, speaker: Speaker) -> None:
    """Under the words so far it says what the agent waits for, until there are more of them."""
    visitor = await ask(context, shop, lang="cs")
    await expect(label(visitor)).to_have_text("Přemýšlím…")
    speaker.say("Podívám se. ")
    await expect(answer(visitor)).to_have_text("Podívám se. ")
    await expect(label(visitor)).to_have_count(0)
    begin_tool(speaker, "search_knowledge")
    await expect(label(visitor)).to_have_text("Hledám…")
    await expect(answer(visitor)).to_have_text("Podívám se. ")
    await visitor.page.reload()
    await expect(label(visitor)).to_have_text("Hledám…")
    await expect(answer(visitor)).to_have_text("Podívám se. ")
    end_tool(speaker)
    speaker.say("Ano.")
    await expect(answer(visitor)).to_have_text("Podívám se. Ano.")
    await expect(label(visitor)).to_have_count(0)
    speaker.finish()
    await visitor.settled()
    no_problems(visitor)


async def test_a_tool_ends_with_the_next_words(context: BrowserContext, shop: Shop) -> None:
    """Both may come at once: the words grow, and nobody waits for the tool any more."""
    visitor = await shop.arrive(context)
    await visitor.open()
    await visitor.write("hello")
    await visitor.settled()
    conversation = (await visitor.session())["conversation_id"]

    async def hear(text: str, tools: dict[str, str]) -> None:
        """As from the tab that reads the stream."""
        await visitor.page.evaluate(
            """([conversation, run]) => new BroadcastChannel("hlas").postMessage(
              [conversation, [], { until: 0, run: { ...run, at: Date.now() } }])""",
            [conversation, {"id": "r", "text": text, "tools": tools}],
        )

    await hear("One ", {"c1": "search_knowledge"})
    await expect(label(visitor)).to_have_text("Searching…")
    await hear("One two", {})
    await expect(answer(visitor)).to_have_text("One two")
    # At once, not with the next poll.
    assert await label(visitor).count() == 0
    no_problems(visitor)


async def test_who_wants_no_motion(browser: Browser, shop: Shop, speaker: Speaker) -> None:
    """The words say it; nothing moves."""
    context = await browser.new_context(reduced_motion="reduce", locale="en-GB")
    visitor = await ask(context, shop)
    begin_tool(speaker, "get_product")
    await expect(label(visitor)).to_have_text("Looking up products…")
    assert await visitor.page.evaluate("hlas.shadowRoot.getAnimations().length") == 0
    await context.close()


async def test_consent(context: BrowserContext, shop: Shop, speaker: Speaker) -> None:
    """Tool and arguments in words; with the keyboard; every tab forgets the question at once."""
    visitor = await ask(context, shop)
    other = await Visitor.arrive(context, shop.page(path="/other"))
    call = book(
        visit_day="Monday",
        people=2,
        is_urgent=True,
        note=None,
        rooms=["A", "B"],
        address={"street": "Dlouhá 7", "floor": {"number": 3}},
    )
    await propose(visitor, speaker, call)
    await expect(consent(other)).to_be_visible()
    group = visitor.page.get_by_role("group", name="Book a visit")
    names = await group.locator("dt").all_text_contents()
    values = await group.locator("dd").all_text_contents()
    assert dict(zip(names, values, strict=True)) == {
        "visit day": "Monday",
        "people": "2",
        "is urgent": "true",
        "note": "-",
        "rooms": "A, B",
        # The database orders names by their length.
        "address": "floor: number: 3, street: Dlouhá 7",
    }
    await press(visitor, "Confirm").focus()
    await visitor.page.keyboard.press("Enter")
    await visitor.page.keyboard.press("Enter")
    for tab in (visitor, other):
        await expect(consent(tab)).to_have_count(0)
        await expect(tab.rows("user")).to_have_text(["How do you deliver?", "Confirm"])
    await expect(visitor.field).to_be_focused()
    await visitor.page.reload()
    await expect(visitor.rows("user")).to_have_count(2)
    speaker.say("It is booked.")
    speaker.finish()
    await expect(answer(visitor)).to_have_text("It is booked.")
    await expect(consent(visitor)).to_have_count(0)
    assert await read_decisions(shop) == [("Confirm", {"confirm": call.id})]
    no_problems(visitor, other)


async def test_no_consent(context: BrowserContext, shop: Shop, speaker: Speaker) -> None:
    """Cancel is a message, too. Whoever writes something else has not decided."""
    visitor = await ask(context, shop, lang="cs")
    call = book()
    await propose(visitor, speaker, call)
    await press(visitor, "Zrušit").dblclick()
    await expect(consent(visitor)).to_have_count(0)
    await visitor.page.wait_for_timeout(300)
    await expect(visitor.rows("user")).to_have_text(["How do you deliver?", "Zrušit"])
    await propose(visitor, speaker, book(day="Tuesday"))
    await visitor.write("What does it cost?")
    await expect(consent(visitor)).to_have_count(0)
    speaker.say("Nothing.")
    speaker.finish()
    await visitor.settled()
    await expect(consent(visitor)).to_have_count(0)
    assert await read_decisions(shop) == [("Zrušit", {"decline": call.id})]
    no_problems(visitor)


async def test_a_decision_on_a_bad_line(
    context: BrowserContext, shop: Shop, speaker: Speaker
) -> None:
    """Lost requests, lost answers and a reload between them: one decision, and no second chance."""
    async with open_proxy(shop.live.url) as proxy:
        visitor = await ask(context, shop, proxy.url)
        call = book()
        await propose(visitor, speaker, call)
        other = await Visitor.arrive(context, shop.page(api=proxy.url, path="/other"))
        await expect(consent(other)).to_be_visible()
        is_losing = True

        def choose(seen: Seen) -> Fault:
            if seen.path != "/widget/messages":
                return Fault.PASS
            return Fault.LOSE_REQUEST if is_losing else faults.pop(0) if faults else Fault.PASS

        faults = [Fault.LOSE_ANSWER, Fault.HALVE_ANSWER]
        proxy.choose = choose
        await press(visitor, "Confirm").click()
        for tab in (visitor, other):
            await expect(consent(tab)).to_have_count(0)
        await visitor.page.reload()
        await expect(visitor.rows("user")).to_have_text(["How do you deliver?", "Confirm"])
        await expect(consent(visitor)).to_have_count(0)
        is_losing = False
        await visitor.page.evaluate("dispatchEvent(new Event('online'))")
        speaker.say("It is booked.")
        speaker.finish()
        for tab in (visitor, other):
            await expect(answer(tab)).to_have_text("It is booked.", timeout=20_000)
            await tab.settled()
            await expect(tab.rows("user")).to_have_text(["How do you deliver?", "Confirm"])
    assert await read_decisions(shop) == [("Confirm", {"confirm": call.id})]
    no_problems(visitor, other)


async def test_two_tabs_decide(context: BrowserContext, shop: Shop, speaker: Speaker) -> None:
    """A tab that has not heard yet of the other's decision looks again before it sends its own."""
    visitor = await ask(context, shop)
    other = await Visitor.arrive(context, shop.page(path="/other"))
    call = book()
    await propose(visitor, speaker, call)
    await expect(consent(other)).to_be_visible()
    # Deaf and held up: it learns of nothing, and its button is still there.
    await other.page.evaluate(
        """() => {
          addEventListener("storage", (event) => event.stopImmediatePropagation(), true);
          window.button = hlas.shadowRoot.querySelector("fieldset .decline");
        }"""
    )
    await press(visitor, "Confirm").click()
    await other.page.evaluate("button.click()")
    for tab in (visitor, other):
        await expect(consent(tab)).to_have_count(0)
        await expect(tab.rows("user")).to_have_text(["How do you deliver?", "Confirm"])
    speaker.say("It is booked.")
    speaker.finish()
    await visitor.settled()
    assert await read_decisions(shop) == [("Confirm", {"confirm": call.id})]


async def test_the_notice(context: BrowserContext, shop: Shop, speaker: Speaker) -> None:
    """Once a model has answered, not before; in the visitor's language or the owner's words."""
    visitor = await ask(context, shop)
    await shop.say(visitor, "From the knowledge", "assistant", {"source": "knowledge"})
    await expect(answer(visitor)).to_have_text("From the knowledge")
    await expect(notice(visitor)).to_be_hidden()
    speaker.say("From the model")
    speaker.finish()
    await expect(notice(visitor)).to_be_visible()
    await expect(notice(visitor)).to_have_text("AI can make mistakes.")
    await visitor.page.goto(shop.page(lang="cs"))
    await expect(notice(visitor)).to_have_text("AI se může mýlit.")
    await visitor.page.goto(shop.page('data-notice="Ask us to be sure."'))
    await expect(notice(visitor)).to_have_text("Ask us to be sure.")
    await visitor.page.goto(shop.page(f'data-notice="{"x" * 121}"'))
    await expect(notice(visitor)).to_have_text("AI can make mistakes.")
    await visitor.page.evaluate("hlas.reset()")
    await expect(notice(visitor)).to_be_hidden()
    await shop.dress({"notice": "A machine wrote this."})
    await visitor.open()
    await visitor.write("hello")
    speaker.say("Hello.")
    speaker.finish()
    await expect(notice(visitor)).to_have_text("A machine wrote this.")
    await expect(notice(visitor)).to_be_visible()
    no_problems(visitor)


# Whatever a page or a tool's author wrote into them.
ADDRESSES = [
    "javascript:ran()",
    "JaVaScRiPt:ran()//https://x",
    " https://example.com",
    "data:text/html,<script>ran()</script>",
    "//evil.example",
    "https://example.com\njavascript:ran()",
    "",
]


async def test_hostile_words(context: BrowserContext, shop: Shop, speaker: Speaker) -> None:
    """Titles, addresses, tools and arguments are text of bounded size; nothing runs or links."""
    await context.add_init_script(RAN)
    visitor = await ask(context, shop, strict=False)
    long = HOSTILE + "x" * 10_000
    sources = [Source(number, long, url) for number, url in enumerate(ADDRESSES, 1)]
    arguments: dict[str, object] = {
        long: long,
        "deep": {HOSTILE: [HOSTILE, {"__proto__": HOSTILE}]},
        "__proto__": HOSTILE,
        "many": list(range(5_000)),
    }
    speaker.say("".join(f"Words [{one.number}]. " for one in sources))
    speaker.finish(sources=tuple(sources), confirmation=Confirmation(str(uuid4()), long, arguments))
    await expect(consent(visitor)).to_be_visible()
    await expect(answer(visitor).locator("sup")).to_have_count(len(ADDRESSES))
    await expect(visitor.page.locator("hlas-chat .bubble a")).to_have_count(0)
    active = "script, img, iframe, style, [onerror], [href^='javascript' i]"
    await expect(visitor.panel.locator(active)).to_have_count(0)
    assert await visitor.page.evaluate("window.hasRun") is None
    assert HOSTILE in await consent(visitor).locator("legend").inner_text()
    log = visitor.page.get_by_role("log")
    assert await log.evaluate("log => log.scrollWidth - log.clientWidth") == 0
    line = await answer(visitor).locator("li").first.bounding_box()
    box = await consent(visitor).bounding_box()
    assert line is not None
    assert box is not None
    assert line["height"] < 50
    assert box["height"] < 2_000
    no_problems(visitor)


@pytest.mark.parametrize("mode", MODES)
async def test_axe_finds_nothing(browser: Browser, shop: Shop, mode: str) -> None:
    """0 violations while the agent thinks, uses a tool, cites, asks for consent."""
    options, page = MODES[mode]
    speaker = Speaker.take_over(shop.live)
    await shop.dress({"color": "#ffd23f", "privacy_url": "https://example.com/privacy"})
    # Half way through its opening, the panel is half transparent.
    context = await browser.new_context(**options, reduced_motion="reduce")
    visitor = await ask(context, shop, strict=False, **page)
    assert await violations(visitor) == []
    begin_tool(speaker, "search_knowledge")
    await expect(label(visitor)).to_have_text("Searching…")
    assert await violations(visitor) == []
    speaker.say(TEXT)
    await expect(answer(visitor).locator("sup")).to_have_count(4)
    assert await violations(visitor) == []
    end_tool(speaker)
    speaker.finish(sources=SOURCES, confirmation=book(day="Monday", people=2))
    await expect(consent(visitor)).to_be_visible()
    await visitor.settled()
    await expect(notice(visitor)).to_be_visible()
    # The log follows its end, however much comes at once.
    await expect(press(visitor, "Confirm")).to_be_in_viewport()
    assert await violations(visitor) == []
    await context.close()


async def test_sources_in_the_console(
    browser: Browser, context: BrowserContext, shop: Shop, speaker: Speaker
) -> None:
    """The operator sees the same marks and sources as the visitor, live and loaded."""
    visitor = await ask(context, shop)
    shop.site.session = await visitor.session()
    desk = await Desk.open(await browser.new_context(), shop.live, shop.operators)
    await desk.go(f"/tenants/{shop.site.slug}/conversations/{shop.site.conversation_id}")
    bubble = desk.page.locator("#log .assistant > .bubble")
    speaker.say(TEXT)
    await expect(bubble.locator("sup")).to_have_count(4)
    hostile = Source(4, HOSTILE + "'\"&", "javascript:alert(1)")
    speaker.finish(sources=(*SOURCES, hostile))
    await expect(bubble.locator(".sources li")).to_have_count(4)
    await visitor.settled()
    live = await bubble.inner_html()
    assert live == await answer(visitor).inner_html()
    await desk.page.reload()
    await expect(bubble.locator(".sources li")).to_have_count(4)
    assert await bubble.inner_html() == live
    assert (await bubble.locator(".sources li").last.inner_text()).endswith("'\"&")
    assert await bubble.locator("[href^=javascript]").count() == 0
    assert desk.problems == []
    await desk.page.context.close()
