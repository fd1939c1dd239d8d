"""The console's page Tools in a browser: files, confirmations, and one that is too large."""

from uuid import UUID

import pytest
from playwright.async_api import BrowserContext, Dialog, FilePayload, expect

from e2e.console import Desk
from factories import Site
from hlas.agent.tools import products
from hlas.agent.tools.products import Product
from hlas.store.db import Database


def file_of(data: bytes) -> FilePayload:
    return {"name": "goods.csv", "mimeType": "text/csv", "buffer": data}


async def test_import_of_a_file(context: BrowserContext, site: Site, operators: Database) -> None:
    """A chosen file fills the field; removing others is confirmed; the outcome is in view."""
    tenant_id = UUID(site.tenant_id)
    await products.save(operators, tenant_id, [Product("OLD", "Old")], source="test")
    desk = await Desk.open(context, site.live, operators, site.slug)
    page = desk.page
    await desk.go(f"/tenants/{site.slug}")
    await page.get_by_role("link", name="Tools", exact=True).click()
    chooser, text = page.get_by_label("CSV file"), page.get_by_label("CSV", exact=True)
    await chooser.set_input_files(file_of("sku;name\r\nČ-1;Konvice\r\n".encode("cp1250")))
    await expect(page.locator("#file-problem")).to_contain_text("Save it as CSV UTF-8.")
    await chooser.set_input_files(file_of("sku;name\r\nČ-1;Konvice\r\n".encode("utf-8-sig")))
    await expect(page.locator("#file-problem")).to_be_empty()
    await expect(text).to_have_value("sku;name\nČ-1;Konvice\n")
    asked: list[str] = []

    async def refuse(dialog: Dialog) -> None:
        asked.append(dialog.message)
        await dialog.dismiss()

    page.once("dialog", refuse)
    await page.get_by_label("Remove products that are not in it").check()
    await page.get_by_role("button", name="Import").click()
    assert asked == ["Remove all products that are not in this file?"]
    page.once("dialog", Dialog.accept)
    await page.get_by_role("button", name="Import").click()
    outcome = page.get_by_text("1 added, 0 updated, 0 unchanged, 1 removed.")
    await expect(outcome).to_be_in_viewport()
    page.once("dialog", Dialog.accept)
    await page.get_by_role("button", name="Remove Konvice (Č-1)").click()
    await expect(page.get_by_role("status")).to_have_text("Removed.")
    assert desk.problems == []


@pytest.mark.settings(max_json_body_bytes=1024)
async def test_a_file_that_is_too_large(
    context: BrowserContext, site: Site, operators: Database
) -> None:
    """It is not sent: the page says what to do instead. One that just fits is imported."""
    desk = await Desk.open(context, site.live, operators, site.slug)
    page = desk.page
    await desk.go(f"/tenants/{site.slug}/tools")
    chooser, text = page.get_by_label("CSV file"), page.get_by_label("CSV", exact=True)
    await chooser.set_input_files(file_of(b"x" * 3073))
    await expect(page.locator("#file-problem")).to_contain_text("larger than 3 kB")
    # Each letter takes six bytes in a form.
    await chooser.set_input_files(file_of(f"sku,name\nA,{'č' * 500}".encode()))
    await expect(text).to_have_js_property("validity.customError", value=True)
    await page.get_by_role("button", name="Import").click()
    await expect(page.get_by_text("1 added")).to_have_count(0)
    await chooser.set_input_files(file_of(f"sku,name\nA,{'č' * 495}".encode()))
    await page.get_by_role("button", name="Import").click()
    await expect(page.get_by_text("1 added")).to_be_visible()
