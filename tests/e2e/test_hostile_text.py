"""Text is text: whatever visitors, assistants or tenants write, nothing of it runs."""

import pytest
from playwright.async_api import BrowserContext, expect

from e2e.shop import Shop
from e2e.visitor import Visitor, no_problems

PAYLOADS = [
    "<img src=x onerror=ran()>",
    "<script>ran()</script>",
    "<svg onload=ran()>",
    "<iframe srcdoc='<script>parent.ran()</script>'></iframe>",
    "<a href=javascript:ran()>x</a>",
    "[x](javascript:ran())",
    "[x](JaVaScRiPt:ran())",
    "[x](javascript:ran``)",
    "**[x](JAVASCRIPT:ran``)**",
    "[x](java\tscript:ran())",
    "[x](data:text/html,<script>ran()</script>)",
    "[x](vbscript:ran())",
    "[x](//evil.example)",
    "[x](blob:http://localhost/1)",
    "[x](https://example.com\"onmouseover='ran())",
    "[<img src=x onerror=ran()>](https://example.com)",
    "**<img src=x onerror=ran()>**",
    "`<img src=x onerror=ran()>`",
    "```\n<img src=x onerror=ran()>\n```",
    "- <img src=x onerror=ran()>\n- javascript:ran()",
    "</textarea></style></script><script>ran()</script>",
    "${ran()} {{ran()}} #{ran()} <%= ran() %>",
    "&lt;img src=x onerror=ran()&gt;",
    "\u202e<script>ran()</script>\u2066",
    "https://example.com/<script>ran()</script>",
    "<style>*{background:url(//evil.example)}</style>",
]
WATCH = "window.ran = () => { window.hasRun = true; }"
# Everything in the panel that a browser would act on.
ACTIVE = """() => [...hlas.shadowRoot.querySelectorAll("*")].flatMap((node) => [
  ...(/^(script|img|iframe|style|object|embed|link)$/.test(node.localName) ? [node.outerHTML] : []),
  ...[...node.attributes].filter((one) => /^on/.test(one.name)).map((one) => one.name),
  ...(node.href && !/^(https?|mailto|tel):/.test(node.href) ? [node.href] : []),
])"""


async def arrive_without_policy(context: BrowserContext, shop: Shop) -> Visitor:
    """No policy helps here: the widget must be safe by itself."""
    await context.add_init_script(WATCH)
    return await Visitor.arrive(context, shop.page(strict=False))


async def nothing_ran(visitor: Visitor) -> None:
    for link in await visitor.page.locator("hlas-chat .bubble a").all():
        await link.dispatch_event("mouseover")
    assert await visitor.page.evaluate("window.hasRun") is None
    assert await visitor.page.evaluate(ACTIVE) == []
    no_problems(visitor)


async def test_visitors_text_is_text(context: BrowserContext, shop: Shop) -> None:
    """Every payload is shown as it was typed."""
    visitor = await arrive_without_policy(context, shop)
    await visitor.open()
    for text in PAYLOADS:
        await visitor.page.evaluate("text => hlas.send(text)", text)
    await expect(visitor.rows("user")).to_have_count(len(PAYLOADS))
    await visitor.settled()
    shown = await visitor.rows("user").evaluate_all("rows => rows.map((row) => row.textContent)")
    assert shown == PAYLOADS
    await nothing_ran(visitor)


@pytest.mark.parametrize("role", ["assistant", "operator", "system"])
async def test_answers_are_safe_markdown(context: BrowserContext, shop: Shop, role: str) -> None:
    """The same payloads from the other side: only the safe subset becomes elements."""
    visitor = await arrive_without_policy(context, shop)
    await visitor.open()
    await visitor.write("hello")
    await visitor.settled()
    for text in PAYLOADS:
        await shop.say(visitor, text, role)
    rows = visitor.rows(role)
    extra = 2 if role == "assistant" else 0  # the greeting, and the answer to "hello"
    await expect(rows).to_have_count(len(PAYLOADS) + extra, timeout=30_000)
    await nothing_ran(visitor)


async def test_the_safe_subset_is_rendered(context: BrowserContext, shop: Shop) -> None:
    """Bold, italic, code, lists and links come out as what they are; the rest stays text."""
    visitor = await shop.arrive(context)
    await visitor.open()
    await visitor.write("hello")
    await visitor.settled()
    text = (
        "**bold** *it* `code` snake_case 2*3*4\n\n- one\n- two **b**\n\n3. three\n4. four\n\n"
        "[site](https://example.com/a?b=1) [mail](mailto:a@example.com) [call](tel:+420123)\n"
        "see https://example.com/x, or **https://example.com/y**.\n\n```js\nlet a = 1;\n```\nend"
    )
    await shop.say(visitor, text, "assistant")
    row = visitor.rows("assistant").last
    await expect(row).to_contain_text("end", timeout=20_000)
    shape = await row.evaluate(
        """row => [...row.querySelectorAll("strong, em, code, li, a, pre, ol, p")].map((node) =>
          node.localName + ":" +
          (node.getAttribute("href") ?? node.getAttribute("start") ?? node.textContent))"""
    )
    for wanted in (
        "strong:bold",
        "em:it",
        "code:code",
        "li:one",
        "li:two b",
        "ol:3",
        "a:https://example.com/a?b=1",
        "a:mailto:a@example.com",
        "a:tel:+420123",
        "a:https://example.com/x",
        "a:https://example.com/y",
        "pre:let a = 1;",
        "p:end",
    ):
        assert wanted in shape, shape
    assert "snake_case" in await row.inner_text()
    rels = await row.locator("a").evaluate_all("all => all.map((one) => one.rel + one.target)")
    assert set(rels) == {"noopener noreferrer nofollow_blank"}
    no_problems(visitor)


async def test_configuration_is_never_trusted(context: BrowserContext, shop: Shop) -> None:
    """Payloads, wrong types and wrong ranges in ui_config: passed over or shown as text."""
    visitor = await arrive_without_policy(context, shop)
    for text in PAYLOADS:
        names = ("title", "subtitle", "greeting", "placeholder", "launcher", "language", "color")
        looks: dict[str, object] = dict.fromkeys((*names, "notice"), text)
        looks |= dict.fromkeys(("color_text", "position", "theme", "z_index", "privacy_url"), text)
        looks["suggestions"] = [text, 7, None, {"a": 1}, text * 100]
        await shop.dress(looks)
        await visitor.page.evaluate("hlas.reset()")
        await visitor.open()
        await expect(visitor.page.locator("hlas-chat header strong")).to_have_text(
            "Chat with us" if "\n" in text else text
        )
        await nothing_ran(visitor)
        await visitor.page.evaluate("hlas.close()")
    wrong: dict[str, object] = {
        "title": 7,
        "greeting": ["a"],
        "suggestions": "abc",
        "z_index": -1,
        "color": "red; background: url(//evil.example)",
        "privacy_url": "javascript:ran()",
        "position": {"a": 1},
        "theme": None,
    }
    await shop.dress(wrong)
    await visitor.page.evaluate("hlas.reset()")
    await visitor.open()
    await expect(visitor.panel).to_contain_text("Hello! How can we help you?")
    await expect(visitor.page.locator("hlas-chat footer > a")).to_be_hidden()
    await nothing_ran(visitor)
