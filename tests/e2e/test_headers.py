"""Security headers seen by a real browser: what they forbid does not happen."""

import asyncio

from playwright.async_api import BrowserContext, Page

from e2e.console import Desk
from e2e.shop import Shop

# Each tries to run code in a page of ours.
INJECTIONS = {
    "an inline script": """() => {
        const script = document.createElement("script");
        script.append("window.hacked = 1");
        document.body.append(script);
    }""",
    "an event handler": """() => {
        const button = document.createElement("button");
        button.setAttribute("onclick", "window.hacked = 1");
        document.body.append(button);
        button.click();
    }""",
    "markup": """() => { document.body.innerHTML += "<img src=x onerror='window.hacked = 1'>"; }""",
    "text as code": """() => { setTimeout("window.hacked = 1"); }""",
    "a foreign script": """() => {
        const script = document.createElement("script");
        script.setAttribute("src", "FOREIGN/hacked.js");
        document.body.append(script);
    }""",
    "a frame": """() => {
        const frame = document.createElement("iframe");
        frame.setAttribute("src", "javascript:parent.hacked = 1");
        document.body.append(frame);
    }""",
}
LOADS = """([kind, address]) => new Promise((resolve) => {
    const element = document.createElement(kind === "style" ? "link" : kind);
    element.onload = () => resolve("load");
    element.onerror = () => resolve("error");
    if (kind === "style") { element.rel = "stylesheet"; element.href = address; }
    else element.src = address;
    document.body.append(element);
})"""


async def hack(page: Page, foreign: str) -> list[str]:
    """Which injections got through."""
    for number, attempt in enumerate(INJECTIONS.values()):
        tried = attempt.replace("FOREIGN", foreign).replace("hacked", f"hacked{number}")
        await page.evaluate(f"async () => {{ try {{ await ({tried})(); }} catch {{}} }}")
    await page.wait_for_timeout(500)
    return [
        name
        for number, name in enumerate(INJECTIONS)
        if await page.evaluate(f"window.hacked{number}")
    ]


async def test_injected_code_does_not_run(context: BrowserContext, shop: Shop) -> None:
    """On the console and the demo page nothing injected runs; on a page without a policy it does.

    The last part is the control: the attempts are real.
    """
    foreign = shop.website.origin
    for number in range(len(INJECTIONS)):
        shop.website.put(f"/hacked{number}.js", f"window.hacked{number} = 1")
    desk = await Desk.open(context, shop.live, shop.operators)
    assert await hack(desk.page, foreign) == []
    await desk.page.goto(f"{shop.live.url}/demo/en")
    assert await hack(desk.page, foreign) == []
    await desk.page.goto(shop.website.put("/plain", "<!doctype html><body></body>"))
    assert await hack(desk.page, foreign) == list(INJECTIONS)


async def frame_of(page: Page, address: str) -> str:
    """Where a frame that was sent to an address has got to."""
    before = set(page.frames)
    await page.evaluate(LOADS, ["iframe", address])
    async with asyncio.timeout(30):
        while True:
            urls = [frame.url for frame in page.frames if frame not in before]
            if urls and urls[0] not in {"", "about:blank"}:
                return urls[0]
            await page.wait_for_timeout(50)


async def test_nothing_is_taken_for_what_it_is_not(context: BrowserContext, shop: Shop) -> None:
    """Data cannot be used as a script, style or frame; our pages load nothing from elsewhere."""
    page = await context.new_page()
    here = shop.website.put("/", "<!doctype html><title>Shop</title><body></body>")
    await page.goto(here)
    data = f"{shop.live.url}/health"
    for kind in ("script", "style"):
        assert await page.evaluate(LOADS, [kind, data]) == "error", kind
    # The control: the same browser takes whatever says nothing about itself for a script.
    assert await page.evaluate(LOADS, ["script", here]) == "load"
    for framed in (data, f"{shop.live.url}/console", f"{shop.live.url}/demo/en"):
        assert (await frame_of(page, framed)).startswith("chrome-error"), framed
    assert await frame_of(page, here) == here


async def test_pages_are_shut_in(context: BrowserContext, shop: Shop) -> None:
    """No request or referrer of a page of ours goes elsewhere, and no device is asked for."""
    there = shop.website.put("/there", "<!doctype html><title>There</title><body></body>")
    page = await context.new_page()
    for path in ("/console", "/demo/en", "/docs"):
        await page.goto(f"{shop.live.url}{path}")
        await require_shut_in(page, there)


async def require_shut_in(page: Page, there: str) -> None:
    fetched = await page.evaluate(
        "(address) => fetch(address, { mode: 'no-cors' }).then(() => 'out', () => 'kept')", there
    )
    assert fetched == "kept"
    for device in ("camera", "microphone", "geolocation", "usb", "payment"):
        allowed = await page.evaluate(
            "(name) => document.featurePolicy.allowsFeature(name)", device
        )
        assert not allowed, device
    await page.evaluate("(address) => { location.href = address; }", there)
    await page.wait_for_url(there)
    assert await page.evaluate("document.referrer") == ""
