"""A bad day on the train: nothing is lost, nothing doubled, and the order stays."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from playwright.async_api import BrowserContext, expect

from e2e.console import Desk
from e2e.proxy import Fault, Seen, open_proxy
from e2e.shop import Shop
from e2e.speaker import Chatter
from e2e.visitor import Visitor, no_problems

FAULTS = [Fault.DELAY, Fault.BUSY, Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.HALVE_ANSWER]

# Looks at every frame whether a message is on the screen twice.
WATCH_DOUBLES = """
window.doubles = [];
const watch = () => {
  const rows = window.hlas?.shadowRoot?.querySelectorAll(".user > .bubble") ?? [];
  const texts = [...rows].map((row) => row.textContent);
  if (new Set(texts).size !== texts.length) doubles.push(texts.join(" "));
  requestAnimationFrame(watch);
};
watch();
"""


TEXTS = "bubbles => bubbles.map((bubble) => bubble.textContent)"


async def storm(context: BrowserContext, shop: Shop, count: int, seed: int) -> None:
    chance = random.Random(seed)
    Chatter.take_over(shop.live, chance)
    await context.add_init_script(WATCH_DOUBLES)
    async with open_proxy(shop.live.url) as proxy:
        tabs = [await Visitor.arrive(context, shop.page(api=proxy.url)) for _ in range(2)]
        await tabs[0].open()
        await tabs[0].write("message 0")
        await tabs[0].settled()
        desk = await watch_at_the_console(context, shop, proxy.url)
        await tabs[1].page.bring_to_front()
        await tabs[1].page.reload()

        # Dealt like cards: however few requests there are, every kind of fault comes up.
        deck: list[Fault] = []

        def choose(seen: Seen) -> Fault:
            # Streams are cut anywhere: before the first frame, in a frame, between words.
            proxy.half_bytes = chance.randrange(1, 3000)
            if seen.is_stream and chance.random() < 0.5:
                return Fault.HALVE_ANSWER
            if chance.random() >= 0.3:
                return Fault.PASS
            if not deck:
                deck.extend(chance.sample(FAULTS, len(FAULTS)))
            return deck.pop()

        proxy.choose = choose
        doubles: list[str] = []
        for number in range(1, count):
            tab = chance.choice(tabs)
            await tab.page.bring_to_front()
            await tab.write(f"message {number}")
            await tab.page.wait_for_timeout(chance.randrange(20, 120))
            event = chance.random()
            if event < 0.08:
                other = chance.choice(tabs)
                doubles += await other.page.evaluate("doubles")
                await other.page.reload()
                await expect(other.panel).to_be_visible()
            elif event < 0.14:
                proxy.go_offline()
                await tab.page.wait_for_timeout(chance.randrange(100, 700))
                proxy.offline = False
            elif event < 0.18:
                await context.set_offline(True)
                await tab.page.wait_for_timeout(chance.randrange(100, 700))
                await context.set_offline(False)
        sent = [f"message {number}" for number in range(count)]
        for tab in tabs:
            await tab.page.bring_to_front()
            await tab.settled(120)
            await expect(tab.rows("user")).to_have_count(count, timeout=60_000)
        proxy.choose = lambda _: Fault.PASS
        assert await shop.messages("user") == sent
        everything = await shop.messages()
        for tab in tabs:
            await tab.page.bring_to_front()
            await expect(tab.rows("row")).to_have_count(len(everything) + 1, timeout=60_000)
            assert await tab.texts("user") == sent
            assert await tab.page.locator("hlas-chat .row > .bubble").evaluate_all(TEXTS) == [
                "Hello! How can we help you?",
                *everything,
            ]
            roles = [row.split(" ")[1] for row in await _classes(tab)]
            assert roles[1:] == await _roles(shop)
            doubles += await tab.page.evaluate("doubles")
        assert doubles == []
        shown = desk.page.locator("#log .row .bubble")
        await expect(shown).to_have_count(len(everything), timeout=60_000)
        assert await shown.evaluate_all(TEXTS) == everything
        assert desk.problems == []
        hit = Counter(fault.name for _, fault in proxy.requests)
        print(f"{count} messages, {len(proxy.requests)} requests: {dict(hit)}")
        cut = [fault for seen, fault in proxy.requests if seen.is_stream]
        assert cut.count(Fault.HALVE_ANSWER) > 0
        assert hit["LOSE_ANSWER"] > 0
        assert hit["BUSY"] > 0
        no_problems(*tabs)


async def watch_at_the_console(context: BrowserContext, shop: Shop, url: str) -> Desk:
    """An operator in another browser follows the conversation through the same bad network."""
    assert context.browser is not None
    own = await context.browser.new_context()
    desk = await Desk.open(own, replace(shop.live, url=url), shop.operators)
    [row] = await shop.operators.all(
        "select id from conversations where tenant_id = $1::text::uuid and last_seq > 0",
        shop.site.tenant_id,
    )
    await desk.go(f"/tenants/{shop.site.slug}/conversations/{row['id']}")
    await expect(desk.page.locator("#log .row").first).to_be_visible()
    return desk


async def _classes(tab: Visitor) -> list[str]:
    script = "rows => rows.map(row => row.className)"
    return list(await tab.page.locator("hlas-chat .row").evaluate_all(script))


async def _roles(shop: Shop) -> list[str]:
    rows = await shop.operators.all(
        "select role from messages where tenant_id = $1::text::uuid order by seq",
        shop.site.tenant_id,
    )
    return [row["role"] for row in rows]


@pytest.mark.timeout(300)
async def test_a_storm_of_40_messages(context: BrowserContext, shop: Shop) -> None:
    """Edge case 8: connections cut after the server has read, 503, delays, offline, reloads, two
    tabs and a console: every message exactly once, in order, on every screen and in the database.
    """
    await storm(context, shop, 40, seed=11)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_storm_of_200_messages(context: BrowserContext, shop: Shop, seed: int) -> None:
    """Edge case 8: the same for 200 messages."""
    await storm(context, shop, 200, seed)
