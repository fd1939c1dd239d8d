"""A bad day on the train: nothing is lost, nothing doubled, and the order stays."""

import random
from collections import Counter

import pytest
from playwright.async_api import BrowserContext, expect

from e2e.proxy import Fault, Seen, open_proxy
from e2e.shop import Shop
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


async def storm(context: BrowserContext, shop: Shop, count: int, seed: int) -> None:
    chance = random.Random(seed)
    await context.add_init_script(WATCH_DOUBLES)
    async with open_proxy(shop.live.url) as proxy:
        tabs = [await Visitor.arrive(context, shop.page(api=proxy.url)) for _ in range(2)]
        await tabs[0].open()
        await tabs[0].write("message 0")
        await tabs[0].settled()
        await tabs[1].page.bring_to_front()
        await tabs[1].page.reload()

        # Dealt like cards: however few requests there are, every kind of fault comes up.
        deck: list[Fault] = []

        def choose(seen: Seen) -> Fault:
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
            roles = [row.split(" ")[1] for row in await _classes(tab)]
            assert roles[1:] == await _roles(shop)
            doubles += await tab.page.evaluate("doubles")
        assert doubles == []
        hit = Counter(fault.name for _, fault in proxy.requests)
        print(f"{count} messages, {len(proxy.requests)} requests: {dict(hit)}")
        assert hit["LOSE_ANSWER"] > 0
        assert hit["BUSY"] > 0
        no_problems(*tabs)


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
    tabs: every message exactly once, in order, on both screens and in the database.
    """
    await storm(context, shop, 40, seed=11)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_storm_of_200_messages(context: BrowserContext, shop: Shop, seed: int) -> None:
    """Edge case 8: the same for 200 messages."""
    await storm(context, shop, 200, seed)
