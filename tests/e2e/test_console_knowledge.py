"""The console's page Knowledge in a browser: dropped files, progress, and life without scripts."""

from uuid import UUID

from playwright.async_api import Browser, BrowserContext, FilePayload, expect

from administration import make_desk
from e2e.console import Desk
from factories import Site
from hlas.knowledge import entries
from hlas.store.db import Database

FAQ = b"<details><summary>Do you deliver?</summary>Yes, everywhere.</details>"
# A file that is dropped on the dashed field.
DROP = """([name, text]) => {
  const given = new DataTransfer();
  given.items.add(new File([text], name, { type: "text/html" }));
  const place = document.querySelector(".drop");
  for (const type of ["dragover", "drop"]) {
    const event = new DragEvent(type, { dataTransfer: given, bubbles: true, cancelable: true });
    if (place.dispatchEvent(event)) throw new Error(`${type} is left to the browser`);
  }
}"""


async def test_a_dropped_file(context: BrowserContext, site: Site, operators: Database) -> None:
    """It is previewed, announced, saved once, and answers at once in the pane beside it."""
    desk = await Desk.open(context, site.live, operators, site.slug)
    page = desk.page
    await desk.go(f"/tenants/{site.slug}/knowledge")
    await page.evaluate(DROP, ["faq.html", FAQ.decode()])
    await page.get_by_role("button", name="Preview").click()
    await expect(page.get_by_role("heading", name="Preview")).to_be_focused()
    await expect(page.get_by_text("Reading faq.html…")).to_be_hidden()
    await expect(page.get_by_role("checkbox", name="Do you deliver?")).to_be_checked()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status")).to_contain_text("faq.html: 1 added")
    await page.get_by_label("A visitor asks").fill("Do you deliver?")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status")).to_contain_text("Yes, everywhere.")
    await page.get_by_label("Search", exact=True).fill("nowhere")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status")).to_have_text("0 found. Show all")
    assert desk.problems == []


async def test_without_scripts(browser: Browser, site: Site, operators: Database) -> None:
    """A file is imported, and its preview discarded or saved, where no script runs."""
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    key = (await make_desk(site.live, operators, site.slug)).key
    await page.goto(f"{site.live.url}/console/tenants/{site.slug}/knowledge")
    await page.get_by_label("Admin key").fill(key)
    await page.keyboard.press("Enter")
    faq: FilePayload = {"name": "faq.html", "mimeType": "text/html", "buffer": FAQ}
    for done, count in (("Discard", 0), ("Save", 1)):
        await page.get_by_label("Documents").set_input_files([faq])
        await page.get_by_role("button", name="Preview").click()
        await page.get_by_role("link" if done == "Discard" else "button", name=done).click()
        await expect(page.get_by_role("heading", name="Questions and answers")).to_be_visible()
        assert (await entries.count_entries(operators, UUID(site.tenant_id))).answers == count
    await context.close()
