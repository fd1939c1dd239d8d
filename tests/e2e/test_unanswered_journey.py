"""From a question that nobody has answered to its answer: the visitor's way and the operator's."""

from uuid import UUID

from playwright.async_api import Browser, Page, expect

from e2e.console import Desk
from e2e.shop import Shop
from e2e.visitor import Visitor, no_problems
from hlas.agent.knowledge import look_up
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry

ENTRIES = (
    Entry("What does delivery to Slovakia cost?", "Ten euros."),
    Entry("Can I change the delivery address?", "Until noon, by phone."),
    Entry("Do you sell gift cards?", "At the counter."),
    Entry("How long does delivery take?", "Two days."),
)
# Near what the entries say, and answered by none of them.
NEAR_MISSES = (
    "Where do you ship parcels on Sunday?",
    "Is delivery possible to an island abroad?",
    "Can someone assemble furniture after delivery?",
    "May I change my mind about the euro price of a card?",
    "What costs do long trips to Slovakia take?",
    "Do couriers carry delivery upstairs on Sundays?",
)
ANSWER = "We deliver within two days, for 99 crowns."


async def find_unsure(shop: Shop) -> str:
    """A question on which the knowledge is not sure, whatever its figures are at present."""
    ranker = shop.live.app.state.services.agent.means.ranker
    for text in NEAR_MISSES:
        finding = await look_up(ranker, shop.site.tenant_id, text, "en")
        if finding.decision.suggestions:
            return text
    raise AssertionError("the knowledge is sure of everything")


async def press_by_keyboard(page: Page, name: str) -> None:
    """Go back with Shift+Tab from the field to the button of this name, and press Enter."""
    button = page.get_by_role("button", name=name, exact=True)
    await page.locator("hlas-chat textarea").focus()
    for _ in range(20):
        await page.keyboard.press("Shift+Tab")
        if await button.evaluate("(node) => node === node.getRootNode().activeElement"):
            await page.keyboard.press("Enter")
            return
    raise AssertionError(f"Shift+Tab does not reach {name}")


async def refuse_suggestions(visitor: Visitor) -> None:
    """Suggestions are announced and named; "None of these" leads to the contact form."""
    page = visitor.page
    # What is added to the log is announced, and the sentence above the buttons is spoken.
    log = page.get_by_role("log")
    await expect(log.get_by_role("button", name="None of these", exact=True)).to_be_visible()
    offered = [one.question for one in ENTRIES]
    named = [log.get_by_role("button", name=name, exact=True) for name in offered]
    assert sum([await button.count() for button in named]) in {1, 2, 3}
    spoken = page.locator("hlas-chat [aria-live=polite]").filter(has_text="one of these")
    await expect(spoken).to_have_count(1)
    await press_by_keyboard(page, "None of these")
    contact = log.get_by_role("textbox", name="Your e-mail for our answer")
    await expect(contact).to_be_focused()
    await expect(log.get_by_role("button", name="Send", exact=True)).to_be_visible()


async def add_answer(desk: Desk, shop: Shop, asked: str) -> None:
    """The question is in the list, and its answer is written where it stands."""
    page = desk.page
    await desk.go(f"/tenants/{shop.site.slug}")
    await page.get_by_role("link", name="Unanswered 1").click()
    row = page.get_by_role("listitem").filter(has_text=asked)
    await expect(row).to_contain_text("“None of these”")
    await expect(row).to_contain_text("asked once")
    await row.get_by_role("link", name="Add answer").click()
    await expect(page.get_by_label("Question", exact=True)).to_have_value(asked)
    await page.get_by_label("Answer", exact=True).fill(ANSWER)
    await page.get_by_role("button", name="Save the answer").click()
    await expect(page.get_by_role("status")).to_have_text("The answer is saved.")
    await expect(page.get_by_text("None. Questions appear here")).to_be_visible()
    await expect(page.get_by_role("link", name="Unanswered", exact=True)).to_be_visible()


async def test_from_none_of_these_to_an_answer(browser: Browser, shop: Shop) -> None:
    """A visitor refuses all suggestions; an operator answers; the next time it is answered."""
    for entry in ENTRIES:
        await entries.add(shop.operators, UUID(shop.site.tenant_id), entry)
    asked = await find_unsure(shop)
    visitor = await shop.arrive(await browser.new_context(locale="en-GB"))
    await visitor.open()
    await visitor.write(asked)
    await refuse_suggestions(visitor)
    desk = await Desk.open(
        await browser.new_context(locale="en-GB"), shop.live, shop.operators, shop.site.slug
    )
    await add_answer(desk, shop, asked)
    await visitor.write(asked)
    await expect(visitor.rows("assistant").last).to_have_text(ANSWER)
    no_problems(visitor)
    assert desk.problems == []
