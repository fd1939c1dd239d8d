"""Content of the console's pages, over plain HTTP."""

import re
from uuid import UUID, uuid4

import log_scan
from administration import dump_state
from browsers import make_browser
from factories import Site
from hlas.conversations import conversations
from hlas.conversations.conversations import Search
from hlas.limits.rules import OVERRIDES
from hlas.store.db import Database
from hlas.tenants import tenants, visitor_keys

REVISION = re.compile(r'name="revision" value="([0-9a-f]+)"')
NOWHERE = str(uuid4())


async def test_bad_input_is_explained(site: Site, operators: Database) -> None:
    """An invalid form is shown again with its values and an error; nothing is stored."""
    browser = await make_browser(site.live, operators)
    page = await browser.get(f"/tenants/{site.slug}")
    revision = REVISION.findall(page.text)[0]
    before = await dump_state(operators)
    slug = site.slug
    for path, fields, said in (
        ("/tenants", {"name": "", "slug": "UPPER"}, 'value="UPPER"'),
        ("/tenants", {"name": "N", "slug": "-"}, "A slug is 1 to 63 characters"),
        ("/tenants", {"name": "n" * 201, "slug": "n"}, "Write at most 200 characters."),
        ("/tenants", {"name": "Again", "slug": slug}, "with this slug already"),
        (f"/tenants/{slug}", {"name": "N", "messages_tenant": "lots"}, "30/min"),
        (f"/tenants/{slug}", {"name": "N", "retention_days": "soon"}, 'value="soon"'),
        (f"/tenants/{slug}", {"name": "N", "retention_days": "soon"}, "Write a whole number."),
        (f"/tenants/{slug}", {"name": "N", "retention_days": "0"}, "Write 1 or more."),
        (f"/tenants/{slug}/domains", {"domain": "not a domain"}, "such as example.com"),
        (f"/tenants/{slug}/domains", {"domain": site.origin}, "already"),
        (f"/tenants/{slug}/remove", {"slug": "other"}, "exactly"),
        (f"/tenants/{slug}/looks", {"color": "red", "title": "Kept"}, 'value="Kept"'),
        (f"/tenants/{slug}/looks", {"color": "red"}, "a colour such as #1f5eff"),
        (f"/tenants/{slug}/looks", {"privacy_url": "x"}, "an address such as https://"),
        (f"/tenants/{slug}/looks", {"suggestions": "a\n" * 7}, "Write at most 6 of them."),
        (f"/tenants/{slug}/knowledge", {"question": "Only", "answer": " "}, 'value="Only"'),
    ):
        answer = await browser.post(path, revision=revision, **fields)
        assert answer.status_code in {409, 422}, (path, fields)
        assert said in answer.text, (path, fields)
        assert not re.search("String should|Input should|pattern &", answer.text), (path, fields)
    assert await dump_state(operators) == before


async def test_odd_addresses(site: Site, operators: Database) -> None:
    """Edge case 34: an invalid address is answered with a page, never a 5xx."""
    browser = await make_browser(site.live, operators)
    slug = site.slug
    for path in (
        "?range=century&tenant=",
        "?tenant=no-such",
        f"/tenants/{slug}/conversations?before=x&since=yesterday&until=9999-12-31&status=odd&text=%00a",
        f"/tenants/{slug}/conversations/{NOWHERE}",
        f"/tenants/{slug}/conversations/x",
        f"/tenants/{slug}/conversations/{site.conversation_id}?after=99999999999999",
        f"/tenants/{slug}/conversations/{site.conversation_id}?after=x",
        f"/tenants/{slug}/knowledge?after=x&ask=%00%ff",
        f"/tenants/{slug}/knowledge/{NOWHERE}",
        "/tenants/UPPER",
        "/tenants/%ff",
        "/tenants?after=%00",
        "/blocked?reason=x&request_id=%00&before=x",
        "/audit?action=%27&tenant=%00",
        "/no-such/%ff",
    ):
        answer = await browser.get(path)
        assert answer.status_code in {200, 404}, (path, answer.status_code)
        assert "<!doctype html>" in answer.text, path


async def test_every_limit_of_a_tenant_has_a_field(site: Site, operators: Database) -> None:
    """The operators' form has one field for each limit that a tenant can override."""
    browser = await make_browser(site.live, operators)
    page = (await browser.get(f"/tenants/{site.slug}")).text
    names = re.findall(r'name="(\w+)"', page)
    assert {name: names.count(name) for name in OVERRIDES} == dict.fromkeys(OVERRIDES, 1)


async def test_keys_for_signed_in_visitors(site: Site, operators: Database) -> None:
    """A tenant's administrator adds keys, sees a secret once, removes keys and sets the mode."""
    browser = await make_browser(site.live, operators, site.slug)
    path = f"/tenants/{site.slug}"
    page = await browser.get(path)
    revision = REVISION.findall(page.text)[0]
    saved = await browser.post(path, name="N", identity_mode="required", revision=revision)
    assert saved.status_code == 303
    assert (await tenants.find_tenant(operators, site.slug)).identity_mode == "required"
    assert "No visitor can use the chat" in (await browser.get(path)).text
    made = await browser.post(f"{path}/visitor-keys", public_key=" ")
    assert made.status_code == 200
    (row,) = await operators.all("select kid, material from visitor_keys")
    log_scan.hear(row["material"])
    assert row["material"] in made.text
    again = await browser.get(path)
    assert row["material"] not in again.text
    assert row["kid"] in again.text
    bad = await browser.post(f"{path}/visitor-keys", public_key="<script>")
    assert (bad.status_code, "in PEM" in bad.text) == (422, True)
    assert (await browser.post(f"{path}/visitor-keys/remove", kid="\0")).status_code == 404
    gone = await browser.post(f"{path}/visitor-keys/remove", kid=row["kid"])
    assert gone.status_code == 303
    for _ in range(visitor_keys.MOST):
        assert (await browser.post(f"{path}/visitor-keys")).status_code == 200
    assert (await browser.post(f"{path}/visitor-keys")).status_code == 409


async def test_verified_visitors_are_marked(site: Site, operators: Database) -> None:
    """Claimed and verified ids are displayed differently, in the list and in the transcript."""
    browser = await make_browser(site.live, operators)
    path = f"/tenants/{site.slug}/conversations"
    await site.open(visitor_id="eva")
    await site.send("hello")
    for verified, listed, about in (
        (False, "unverified visitor eva", '<span class="chip ">not verified</span>'),
        (True, " verified visitor eva", '<span class="chip good">verified</span>'),
    ):
        await operators.execute(
            "update conversations set is_verified = $1 where visitor_id = 'eva'", verified
        )
        assert listed in (await browser.get(path)).text
        assert about in (await browser.get(f"{path}/{site.conversation_id}")).text


async def test_conversations_show_the_visitors_last_message(
    site: Site, operators: Database
) -> None:
    """The list shows the visitor's last message, not the last answer. Empty conversations are shown
    only on request. A long visitor id is shortened; its tooltip is complete.
    """
    browser = await make_browser(site.live, operators)
    path = f"/tenants/{site.slug}/conversations"
    await site.open(visitor_id="1234567890" * 4)
    empty = site.conversation_id
    await site.open(visitor_id="anna")
    await operators.execute("update conversations set handler = 'agent'")
    await site.send("Do you deliver?")
    await site.live.client.post("/widget/messages/assistant", headers=site.headers(), json={})
    text = (await browser.get(path)).text
    assert "<strong>Do you deliver?</strong>" in text
    assert "2 messages" in text
    assert empty not in text
    text = (await browser.get(f"{path}?empty=on")).text
    assert empty in text
    assert f'<span title="{"1234567890" * 4}">12345678…</span>' in text


async def test_pages_of_conversations_pass_over_empty_ones(site: Site, operators: Database) -> None:
    """Paging finds every conversation with a message, however many empty ones are between."""
    found = []
    for number in range(3):
        await site.open(visitor_id=f"v{number}")
        await site.send("hello")
        found.append(site.conversation_id)
        await site.open(visitor_id=f"e{number}")
    pages: list[str] = []
    before = None
    while len(pages) < 9:
        page, before = await conversations.find(
            operators, UUID(site.tenant_id), Search(empty=False), before=before, limit=1
        )
        pages += [str(one.id) for one in page]
        if before is None:
            break
    assert pages == found[::-1]


async def test_the_audit_names_the_domain(site: Site, operators: Database) -> None:
    """The audit shows the domain and its tenant on the line itself."""
    browser = await make_browser(site.live, operators)
    await browser.post(f"/tenants/{site.slug}/domains", domain="tulips.example")
    text = (await browser.get("/audit?action=domain.add")).text
    assert '<span class="target">tulips.example</span>' in text
    assert f'<span class="chip">{site.slug}</span>' in text


async def test_incidents_are_shown(site: Site, operators: Database) -> None:
    """Each incident has a title, its count and details; an unknown kind is shown unchanged."""
    await operators.execute(
        "insert into incidents (tenant_id, id, kind, count, details) values "
        "($1::text::uuid, gen_random_uuid(), 'token_failures', 1234, $2),"
        "($1::text::uuid, gen_random_uuid(), 'flood', 1, '{}')",
        site.tenant_id,
        {"invalid_token": 1234},
    )
    text = (await (await make_browser(site.live, operators)).get("/incidents")).text
    for shown in ("Forged or broken tokens", "1\u202f234", "invalid_token", "flood"):
        assert shown in text
