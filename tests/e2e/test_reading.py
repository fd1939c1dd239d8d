"""What the visitor reads: history, news from the other side, unread counts, days."""

from playwright.async_api import BrowserContext, expect

from e2e.shop import Shop
from e2e.visitor import Visitor, no_problems


async def test_an_operators_words_arrive_and_are_counted_while_closed(
    context: BrowserContext, shop: Shop
) -> None:
    """A closed panel shows how many messages wait; opening it marks them read, for good."""
    visitor = await shop.arrive(context)
    await visitor.open()
    await visitor.write("is anybody there?")
    await visitor.settled()
    await visitor.page.evaluate("hlas.close()")
    await shop.say(visitor, "Jana here, one moment.")
    await shop.say(visitor, "Back again.")
    badge = visitor.page.locator("hlas-chat .badge")
    await expect(badge).to_have_text("2", timeout=20_000)
    await expect(visitor.launcher).to_have_accessible_name("Open chat, unread: 2")
    await visitor.open()
    await expect(visitor.rows("operator")).to_have_text(["Jana here, one moment.", "Back again."])
    await expect(badge).to_be_hidden()
    await visitor.page.evaluate("hlas.close()")
    await visitor.page.reload()
    await visitor.page.wait_for_timeout(500)
    await expect(badge).to_be_hidden()
    no_problems(visitor)


async def test_a_page_that_slept_catches_up(context: BrowserContext, shop: Shop) -> None:
    """Edge case 20a: after an outage the reader asks from its last seq and misses nothing."""
    visitor = await shop.arrive(context)
    await visitor.open()
    await visitor.write("hello")
    await visitor.settled()
    await context.set_offline(True)
    said = [f"news {number}" for number in range(130)]
    for text in said:
        await shop.say(visitor, text)
    await context.set_offline(False)
    await expect(visitor.rows("operator")).to_have_text(said)
    pages = [one.url for one in visitor.requests if "after=2" in one.url]
    assert pages
    no_problems(visitor)


async def test_days_are_separated_and_times_are_local(context: BrowserContext, shop: Shop) -> None:
    """Messages of earlier days stand under their day, today's under "today"."""
    visitor = await shop.arrive(context, 'data-language="en"')
    await visitor.open()
    await visitor.write("long ago")
    await visitor.settled()
    await shop.operators.execute("update messages set created_at = now() - interval '40 days'")
    await visitor.write("now")
    await visitor.settled()
    await visitor.page.reload()
    await expect(visitor.rows("user")).to_have_text(["long ago", "now"])
    days = await visitor.page.locator("hlas-chat .day").all_inner_texts()
    assert len(days) == 2
    assert days[1] == "today"
    assert days[0] != "today"


async def test_two_tabs_show_the_same(context: BrowserContext, shop: Shop) -> None:
    """What one tab sends and reads is on the other's screen, without a request of its own."""
    first = await shop.arrive(context)
    await first.open()
    await first.write("one")
    await first.settled()
    second = await Visitor.arrive(context, shop.page(path="/second"))
    await expect(second.rows("user")).to_have_text(["one"])
    await second.page.clock.install()  # no timer runs there any more
    await first.page.bring_to_front()
    await first.write("two")
    await first.settled()
    await expect(second.rows("user")).to_have_text(["one", "two"])
    await expect(second.rows("assistant")).to_have_count(3)
    no_problems(first, second)
