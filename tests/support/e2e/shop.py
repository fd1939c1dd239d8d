"""A tenant, its website, and the database behind both."""

from dataclasses import dataclass

import orjson
from playwright.async_api import BrowserContext

from e2e.visitor import Visitor
from e2e.website import Website
from factories import Live, Site
from hlas.store.db import Database, Row
from hlas.store.drafts import Draft

HTML = """<!doctype html><html lang="{lang}" dir="{dir}"><head><title>Shop</title>
<meta name="viewport" content="width=device-width, initial-scale=1"></head>
<body><main><h1>A shop</h1><p>Our goods.</p><a href="#x">A link</a></main>{script}</body></html>"""


@dataclass
class Shop:
    website: Website
    site: Site
    live: Live
    operators: Database

    def strict_policy(self, api: str = "") -> str:
        host = api or self.live.url
        return (
            f"default-src 'none'; script-src {host}; connect-src {host}; style-src 'none'; "
            "require-trusted-types-for 'script'"
        )

    def page(
        self,
        attributes: str = "",
        *,
        api: str = "",
        path: str = "/",
        lang: str = "en",
        direction: str = "ltr",
        strict: bool = True,
    ) -> str:
        """Publish a page with the widget, under the strictest policy or without one."""
        tag = f'<script type="module" src="{api or self.live.url}/widget.js" {attributes}></script>'
        html = HTML.format(lang=lang, dir=direction, script=tag)
        return self.website.put(path, html, self.strict_policy(api) if strict else "")

    async def arrive(self, context: BrowserContext, attributes: str = "") -> Visitor:
        return await Visitor.arrive(context, self.page(attributes))

    async def messages(self, role: str | None = None) -> list[str]:
        """The stored messages of the visitors' conversations, in order."""
        rows: list[Row] = await self.operators.all(
            "select role, content from messages where tenant_id = $1::text::uuid "
            "order by conversation_id, seq",
            self.site.tenant_id,
        )
        return [row["content"] for row in rows if role in {None, row["role"]}]

    async def say(
        self,
        visitor: Visitor,
        content: str,
        role: str = "operator",
        meta: dict[str, object] | None = None,
    ) -> None:
        """Add a message of the shop's side to the visitor's conversation."""
        services = self.live.app.state.services
        session = services.tokens.verify((await visitor.session())["token"])
        row = await self.operators.one("select gen_random_uuid()::text as id")
        assert row is not None
        await services.writer.write(
            Draft(
                tenant_id=session.tenant_id,
                conversation_id=session.conversation_id,
                generation=session.generation,
                message_id=row["id"],
                role=role,
                content=content,
                meta=orjson.dumps(meta or {}).decode(),
                response="{}",
            )
        )

    async def dress(self, looks: dict[str, object]) -> None:
        """Set the tenant's ui_config without validation."""
        await self.operators.execute(
            "update tenants set ui_config = $2 where id = $1::text::uuid",
            self.site.tenant_id,
            looks,
        )
