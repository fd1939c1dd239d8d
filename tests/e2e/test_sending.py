"""Messages on a bad line: what the visitor sees, and what the server gets."""

import asyncio
from itertools import pairwise

import pytest
from playwright.async_api import BrowserContext, expect

from e2e.proxy import Fault, Proxy, Seen, open_proxy
from e2e.shop import Shop
from e2e.visitor import Visitor, no_problems
from factories import Live

SEND = "/widget/messages"


def faults(proxy: Proxy, path: str, *planned: Fault) -> None:
    """Plan what happens to the next requests for a path; after that everything passes."""
    queue = list(planned)

    def choose(seen: Seen) -> Fault:
        return queue.pop(0) if seen.path == path and queue else Fault.PASS

    proxy.choose = choose


def keys(proxy: Proxy, path: str = SEND) -> list[str]:
    return [
        seen.header("idempotency-key")
        for seen, _ in proxy.requests
        if seen.path == path and seen.method == "POST"
    ]


async def until_open(proxy: Proxy) -> None:
    """Until the page reads the conversation's stream."""
    async with asyncio.timeout(20):
        while True:
            if proxy.open_streams:
                return
            await asyncio.sleep(0.02)


async def test_a_lost_answer_is_asked_for_again_with_the_same_key(
    context: BrowserContext, shop: Shop
) -> None:
    """Edge case 8: the server stored it, the answer was cut off; the retry replays, one row."""
    async with open_proxy(shop.live.url) as proxy:
        faults(proxy, SEND, Fault.LOSE_ANSWER, Fault.HALVE_ANSWER)
        planned = proxy.choose
        # A stream would bring the message before any retry.
        proxy.choose = lambda seen: Fault.HOLD_STREAM if seen.is_stream else planned(seen)
        visitor = await Visitor.arrive(context, shop.page(api=proxy.url))
        await visitor.open()
        await visitor.write("only once")
        await expect(visitor.rows("user")).to_have_text(["only once"])
        await visitor.settled()
        assert len(keys(proxy)) >= 3
        assert len(set(keys(proxy))) == 1
    assert await shop.messages("user") == ["only once"]
    assert len(await shop.messages("assistant")) == 1
    no_problems(visitor)


async def test_the_stream_acknowledges_a_message(context: BrowserContext, shop: Shop) -> None:
    """Edge case 8: the answer to a message is lost, but the stream brings the message itself."""
    async with open_proxy(shop.live.url) as proxy:
        visitor = await Visitor.arrive(context, shop.page(api=proxy.url))
        await visitor.open()
        await until_open(proxy)
        # Half an answer: without any of it the browser itself would ask again.
        faults(proxy, SEND, Fault.HALVE_ANSWER)
        await visitor.write("only once")
        await expect(visitor.page.locator("hlas-chat .user time")).to_have_count(1)
        await visitor.settled()
        assert len(keys(proxy)) == 1
    assert await shop.messages("user") == ["only once"]
    assert len(await shop.messages("assistant")) == 1
    no_problems(visitor)


async def test_a_lost_reply_is_not_made_twice(context: BrowserContext, shop: Shop) -> None:
    """Edge case 16: the stream is cut before the answer, and what asks for it then is lost, too:
    the answer is made once, and shown once.
    """
    async with open_proxy(shop.live.url) as proxy:
        visitor = await Visitor.arrive(context, shop.page(api=proxy.url))
        await visitor.open()
        await until_open(proxy)
        planned = [Fault.LOSE_ANSWER, Fault.BUSY, Fault.HALVE_ANSWER, Fault.LOSE_REQUEST]

        def choose(seen: Seen) -> Fault:
            return planned.pop(0) if planned and seen.method == "GET" else Fault.PASS

        proxy.choose = choose
        proxy.cut_streams()
        await visitor.write("a question")
        await expect(visitor.rows("assistant")).to_have_count(2, timeout=20_000)
        await visitor.settled()
        async with asyncio.timeout(60):
            # A stream may bring the answer before it is cut; then it is opened again.
            while planned:  # noqa: ASYNC110  # the proxy uses them up
                await asyncio.sleep(0.05)
        posts = [seen.path for seen, _ in proxy.requests if seen.method == "POST"]
        assert posts == ["/widget/session", SEND]
    assert len(await shop.messages("assistant")) == 1
    no_problems(visitor)


@pytest.mark.parametrize(
    ("retry_after", "least"),
    [("1", 0.99), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.24)],
    ids=["seconds", "a date, which is passed over"],
)
async def test_503_keeps_the_words_and_obeys_retry_after(
    context: BrowserContext, shop: Shop, retry_after: str, least: float
) -> None:
    """A busy server: the message waits, says so, goes by itself, and never before Retry-After."""
    async with open_proxy(shop.live.url) as proxy:
        proxy.retry_after = retry_after
        visitor = await Visitor.arrive(context, shop.page(api=proxy.url))
        await visitor.open()
        times: list[float] = []
        clock = asyncio.get_running_loop().time

        def choose(seen: Seen) -> Fault:
            if seen.path != SEND:
                return Fault.PASS
            times.append(clock())
            return Fault.BUSY if len(times) < 4 else Fault.PASS

        proxy.choose = choose
        await visitor.write("patience")
        await expect(visitor.page.locator("hlas-chat .waiting")).to_contain_text("Waiting")
        await visitor.write("me too")
        await visitor.settled()
        gaps = [after - before for before, after in pairwise(times[:4])]
        assert min(gaps) >= least, gaps
    assert await shop.messages("user") == ["patience", "me too"]
    no_problems(visitor)


async def test_offline_messages_survive_a_reload_and_go_when_the_network_is_back(
    context: BrowserContext, shop: Shop
) -> None:
    """Written in the tunnel, the page closed in the tunnel, sent after it, in order."""
    visitor = await shop.arrive(context)
    await visitor.open()
    await visitor.write("before")
    await visitor.settled()
    await context.set_offline(True)
    await visitor.write("in the tunnel")
    await visitor.write("still in the tunnel")
    await expect(visitor.page.locator("hlas-chat .waiting")).to_have_count(2)
    await visitor.page.close()
    await context.set_offline(False)
    visitor = await shop.arrive(context)
    await visitor.settled()
    sent = ["before", "in the tunnel", "still in the tunnel"]
    await expect(visitor.rows("user")).to_have_text(sent)
    assert await shop.messages("user") == sent
    no_problems(visitor)


async def test_back_online_sends_at_once(context: BrowserContext, shop: Shop) -> None:
    """The event of a network that is back is enough: nobody waits for a timer."""
    async with open_proxy(shop.live.url) as proxy:
        visitor = await Visitor.arrive(context, shop.page(api=proxy.url))
        await visitor.open()
        await visitor.page.wait_for_function("() => localStorage['hlas:session']")
        proxy.go_offline()
        # A clock that stands: only the event can send.
        await visitor.page.evaluate("() => { window.setTimeout = () => 0; }")
        await visitor.write("waiting for the event")
        await visitor.page.wait_for_function(
            """() => Object.keys(localStorage).some((name) =>
              name.startsWith("hlas:out:") && JSON.parse(localStorage[name]).tries === 1)"""
        )
        proxy.offline = False
        await visitor.page.evaluate("() => { dispatchEvent(new Event('online')); }")
        await expect(visitor.page.locator("hlas-chat .user time")).to_have_count(1)
    assert await shop.messages("user") == ["waiting for the event"]


async def test_a_dead_token_is_renewed_without_losing_anything(
    context: BrowserContext, shop: Shop
) -> None:
    """401: the session is refreshed, the conversation stays, the message goes with its key."""
    visitor = await shop.arrive(context)
    await visitor.open()
    await visitor.write("first")
    await visitor.settled()
    before = await visitor.session()
    await visitor.page.evaluate(
        """() => {
          const session = JSON.parse(localStorage["hlas:session"]);
          localStorage["hlas:session"] = JSON.stringify({...session, until: 0});
        }"""
    )
    await visitor.write("second")
    await visitor.settled()
    after = await visitor.session()
    assert after["conversation_id"] == before["conversation_id"]
    await visitor.page.evaluate(
        """() => {
          const session = JSON.parse(localStorage["hlas:session"]);
          localStorage["hlas:session"] = JSON.stringify({...session, token: "nonsense"});
        }"""
    )
    await visitor.write("third")
    await visitor.settled()
    assert sorted(await shop.messages("user")) == ["first", "second", "third"]
    await expect(visitor.rows("user")).to_have_text(["first", "second", "third"])
    assert (await visitor.session())["conversation_id"] != before["conversation_id"]
    no_problems(visitor)


async def test_a_closed_conversation_goes_on_in_a_new_one(
    context: BrowserContext, shop: Shop
) -> None:
    """403 conversation_closed: the words go into a new conversation, the old ones stay in sight."""
    visitor = await shop.arrive(context)
    await visitor.open()
    await visitor.write("old")
    await visitor.settled()
    first = await visitor.session()
    await shop.operators.execute(
        "update conversations set status = 'closed' where id = $1::text::uuid",
        first["conversation_id"],
    )
    await visitor.write("new")
    await visitor.settled()
    assert (await visitor.session())["conversation_id"] != first["conversation_id"]
    await expect(visitor.rows("user")).to_have_text(["old", "new"])
    assert sorted(await shop.messages("user")) == ["new", "old"]


@pytest.mark.settings(max_message_text_len=20)
async def test_a_refused_message_can_be_edited_and_does_not_block_others(
    context: BrowserContext, shop: Shop
) -> None:
    """Edge case 9: a final refusal is told, the next message passes, edited words are accepted."""
    visitor = await shop.arrive(context)
    await visitor.open()
    await visitor.write("this is far too long for this server")
    failed = visitor.page.locator("hlas-chat .failed")
    await expect(failed).to_contain_text("Not sent")
    await visitor.write("short")
    await visitor.page.wait_for_function(
        "() => hlas.shadowRoot.querySelectorAll('.user:not(.failed, .sending)').length === 1"
    )
    await failed.get_by_role("button", name="Try again").click()
    await expect(failed).to_contain_text("Not sent")
    await failed.get_by_role("button", name="Edit").click()
    await expect(visitor.field).to_have_value("this is far too long for this server")
    await expect(failed).to_have_count(0)
    await visitor.write("shorter")
    await visitor.settled()
    await expect(visitor.rows("user")).to_have_text(["short", "shorter"])
    assert await shop.messages("user") == ["short", "shorter"]


async def test_a_refused_site_says_so_and_stops_asking(
    context: BrowserContext, live_server: Live
) -> None:
    """403 domain_not_allowed (here the demo page, with no tenant): one notice, no more requests."""
    visitor = await Visitor.arrive(context, f"{live_server.url}/demo/cs")
    await visitor.page.clock.install()
    await visitor.open()
    await expect(visitor.panel).to_contain_text("není dostupný")
    await visitor.page.clock.run_for(120_000)
    asked = [one for one in visitor.requests if one.url.endswith("/widget/session")]
    assert len(asked) == 1


async def test_without_storage_the_chat_still_works(context: BrowserContext, shop: Shop) -> None:
    """Blocked storage: the conversation lasts as long as the page."""
    await context.add_init_script(
        """Object.defineProperty(window, "localStorage",
             { get() { throw new DOMException("blocked", "SecurityError"); } });"""
    )
    visitor = await Visitor.arrive(context, shop.page())
    await visitor.open()
    await visitor.write("no trace")
    await expect(visitor.rows("assistant")).to_have_count(2)
    assert await shop.messages("user") == ["no trace"]
    no_problems(visitor)


async def test_without_web_locks_messages_are_sent_once_and_in_order(
    context: BrowserContext, shop: Shop
) -> None:
    """Plain http pages have no locks: one tab still sends in order, in one conversation."""
    await context.add_init_script("Object.defineProperty(navigator, 'locks', {value: undefined})")
    async with open_proxy(shop.live.url) as proxy:
        proxy.choose = lambda _: Fault.DELAY
        visitor = await Visitor.arrive(context, shop.page(api=proxy.url))
        sent = [f"number {number}" for number in range(6)]
        for text in sent:
            await visitor.page.evaluate("text => hlas.send(text)", text)
        await visitor.settled()
    assert await shop.messages("user") == sent
    no_problems(visitor)


async def test_reset_in_one_tab_is_a_reset_in_all(context: BrowserContext, shop: Shop) -> None:
    """A shared computer: after reset() no tab shows or keeps anything."""
    first = await shop.arrive(context)
    await first.open()
    await first.write("secret words")
    await first.settled()
    second = await shop.arrive(context)
    await expect(second.rows("user")).to_have_count(1)
    await first.page.evaluate("hlas.reset()")
    await expect(second.rows("user")).to_have_count(0)
    await expect(first.rows("user")).to_have_count(0)
    assert "secret words" not in str(await first.stored())


async def test_reset_forgets_words_that_were_never_sent(
    context: BrowserContext, shop: Shop
) -> None:
    """What waits for the network and what is only typed are forgotten, too, and never sent."""
    async with open_proxy(shop.live.url) as proxy:
        visitor = await Visitor.arrive(context, shop.page(api=proxy.url))
        proxy.go_offline()
        await visitor.open()
        await visitor.write("waiting words")
        await visitor.field.fill("half a sen")
        await visitor.page.evaluate("() => hlas.reset()")
        await expect(visitor.panel).to_be_hidden()
        proxy.offline = False
        await visitor.open()
        await visitor.page.wait_for_function("() => localStorage['hlas:session']")
        await expect(visitor.rows("user")).to_have_count(0)
        await expect(visitor.field).to_have_value("")
    assert await shop.messages("user") == []


async def test_two_tabs_send_each_message_once(context: BrowserContext, shop: Shop) -> None:
    """On a good line one request is made for each message, whichever tab makes it."""
    async with open_proxy(shop.live.url) as proxy:
        url = shop.page(api=proxy.url)
        tabs = [await Visitor.arrive(context, url) for _ in range(2)]
        await tabs[0].open()
        await tabs[0].write("0")
        await tabs[0].settled()
        proxy.choose = lambda _: Fault.DELAY
        for number in range(1, 9):
            await tabs[number % 2].page.evaluate("text => { hlas.send(text); }", str(number))
        for tab in tabs:
            await tab.settled()
        sent = keys(proxy)
    assert len(set(sent)) == 9
    # A tab may hear of the lock before it hears of the last acknowledgement; without a lock: 17.
    assert len(sent) <= 11
    assert sorted(await shop.messages("user")) == [str(number) for number in range(9)]
