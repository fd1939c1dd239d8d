"""Attacks on administrators: scripts in what they read, and pages that act in their name."""

from uuid import UUID

from playwright.async_api import BrowserContext, expect

from administration import make_desk
from e2e.console import Desk
from e2e.shop import Shop
from e2e.website import Website
from factories import Site
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.operators import sign_ins
from hlas.store.db import Database
from hlas.tenants import tenants

SCRIPTS = (
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "\"><svg onload='window.hacked = 1'>",
    "' autofocus onfocus='window.hacked = 1",
    "</title></textarea><script>window.hacked = 1</script>",
    "javascript:window.hacked=1",
    "{{ 7 * 7 }}${7 * 7}{% raw %}",
)


async def test_scripts_are_shown_and_never_run(
    context: BrowserContext, site: Site, operators: Database
) -> None:
    """Names, messages, visitors, metadata, answers, looks that are scripts: text on every page."""
    everything = " ".join(SCRIPTS)
    short = SCRIPTS[0]
    tenant_id = UUID(site.tenant_id)
    await site.open(visitor_id=everything[:128], metadata={everything: everything})
    await site.send(everything, metadata={"x": everything})
    await site.send("x" * 2001)
    await tenants.update(
        operators,
        site.slug,
        {
            "name": everything[:200],
            "fallback_text": everything,
            "ui_config": {"title": short, "greeting": everything, "suggestions": [short]},
        },
    )
    added = await entries.add(operators, tenant_id, Entry(everything, everything, (short,), "en"))
    await operators.execute(
        "insert into incidents (tenant_id, id, kind, details) "
        "values ($1, gen_random_uuid(), $2, $3)",
        tenant_id,
        everything,
        {everything: everything},
    )
    await site.live.app.state.services.traffic.flush(operators)
    desk = await Desk.open(context, site.live, operators)
    tenant = f"/tenants/{site.slug}"
    for path in (
        "",
        f"?tenant={site.slug}",
        "/tenants",
        tenant,
        f"{tenant}/looks",
        f"{tenant}/knowledge?ask=hacked",
        f"{tenant}/knowledge/{added.id}",
        f"{tenant}/conversations?text=%3Cscript%3E&visitor_id=",
        f"{tenant}/conversations/{site.conversation_id}",
        "/conversations?tenant=",
        "/blocked",
        "/incidents",
        "/audit",
    ):
        await desk.go(path)
        await desk.page.wait_for_timeout(150)
        for frame in desk.page.frames:
            assert await frame.evaluate("window.hacked") is None, path
        assert "49" not in await desk.page.locator("h1").first.inner_text()
    await desk.go(f"{tenant}/conversations/{site.conversation_id}")
    await expect(desk.page.locator("#log .bubble")).to_have_text([everything])
    await site.send(everything)
    await expect(desk.page.locator("#log .bubble")).to_have_text(
        [everything, everything], timeout=20_000
    )
    assert await desk.page.evaluate("window.hacked") is None
    # The policy had nothing to refuse: what is escaped is not even tried.
    assert desk.problems == []


EVIL = """<!doctype html><title>Evil</title><body>
<form id=f method=post action="{target}"><input name=name value=Taken><input name=slug value=taken>
<input name=form_token value=guessed></form>
<iframe id=frame src="{console}"></iframe>
<script>
  fetch("{target}", {{ method: "POST", mode: "no-cors", credentials: "include",
    body: new URLSearchParams("name=Taken&slug=taken") }}).catch(() => {{}});
  fetch("{console}", {{ credentials: "include" }}).then((answer) => answer.text())
    .then((text) => {{ document.title = "read " + text.length; }}, () => {{}});
</script>"""


async def test_another_site_can_do_nothing(
    context: BrowserContext, shop: Shop, operators: Database
) -> None:
    """A page elsewhere, open beside the console: no form, fetch or frame of it has any effect."""
    desk = await Desk.open(context, shop.live, operators)
    website: Website = shop.website
    console = f"{shop.live.url}/console"
    evil = website.put("/evil", EVIL.format(target=f"{console}/tenants", console=console))
    page = await context.new_page()
    await page.goto(evil)
    await page.wait_for_load_state("networkidle")
    assert await page.title() == "Evil"
    frame = page.frames[1]
    assert await frame.locator("nav").count() == 0, "the console does not let itself be framed"
    await page.evaluate("document.getElementById('f').submit()")
    await page.wait_for_url("**/console/**")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Hlas console")
    listed = await tenants.list_tenants(operators)
    assert [one.slug for one in listed] == [shop.site.slug]
    await desk.page.reload()
    await expect(desk.page.get_by_role("button", name="Sign out")).to_be_visible()


async def test_the_preview_is_shut_in(context: BrowserContext, shop: Shop) -> None:
    """The frame of the preview has no cookies, no storage, no network and no way to its parent."""
    desk = await Desk.open(context, shop.live, shop.operators)
    await desk.go(f"/tenants/{shop.site.slug}/looks")
    await expect(desk.page.frame_locator("#preview").locator("hlas-chat header")).to_be_visible()
    (frame,) = (one for one in desk.page.frames if one.url.endswith("/console/preview"))
    for attempt in (
        "document.cookie",
        "localStorage.length",
        "parent.document.title",
        "parent.location.href",
    ):
        tried = f"() => {{ try {{ {attempt} }} catch (error) {{ return error.name }} }}"
        assert await frame.evaluate(tried) == "SecurityError", attempt
    reached = await frame.evaluate(
        """() => new Promise((resolve) => {
          const request = new XMLHttpRequest();
          request.open("GET", "/console/tenants");
          request.onload = () => resolve("reached");
          request.onerror = () => resolve("refused");
          try { request.send(); } catch { resolve("refused"); }
        })"""
    )
    assert reached == "refused"


SIGN_IN = """<!doctype html><title>Evil</title><body>
<form id=f method=post action="{target}"><input name=key value="{key}">
<input name=form_token value="{token}"></form>"""


async def test_another_site_signs_nobody_in(
    context: BrowserContext, shop: Shop, operators: Database
) -> None:
    """Edge case 53: a page elsewhere cannot sign a browser in with a key of its own choice."""
    desk = await make_desk(shop.live, operators)
    target = f"{shop.live.url}/console/sign-in"
    mine = await context.new_page()
    await mine.goto(target)
    token = await mine.locator("[name=form_token]").get_attribute("value")
    page = await context.new_page()
    for given in (sign_ins.form_token(""), token):
        form = SIGN_IN.format(target=target, key=desk.key, token=given)
        await page.goto(shop.website.put("/evil", form))
        await page.evaluate("document.getElementById('f').submit()")
        await expect(page.get_by_role("heading", level=1)).to_have_text("That did not work")
        await page.get_by_role("link", name="Sign in again").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Hlas console")
    await mine.get_by_label("Admin key").fill(desk.key)
    await mine.keyboard.press("Enter")
    await expect(mine.get_by_role("button", name="Sign out")).to_be_visible()
