"""How a tenant's agent answers, and a pane to try it."""

from dataclasses import dataclass

from fastapi import Response
from pydantic import ValidationError

from hlas.agent import agent_settings, evaluation
from hlas.agent.agent_settings import (
    BUILT_IN,
    LONGEST_INSTRUCTIONS,
    MOST_MODELS,
    MOST_STEPS,
    OPERATORS_ONLY,
    AgentChanges,
    AgentSettings,
)
from hlas.agent.loop import Trial
from hlas.agent.providers import models
from hlas.api.console.access import (
    CONSOLE,
    Form,
    PathTenant,
    Sent,
    Signed,
    Visit,
    attempt,
    explain,
    go,
    parse_number,
    router,
)
from hlas.knowledge import language
from hlas.knowledge.language import Language
from hlas.services import Services
from hlas.tenants.tenants import Tenant

LONGEST_QUESTION_TRIED = 2000
# The first model, and some to try when it fails; more can be chosen on the command line.
FEWEST_MODEL_FIELDS = 2
MOST_EVALUATIONS = 5

ORDER = ("First", "Second", "Third", "Fourth", "Fifth")
NO_MODEL = ("None: the knowledge answers", "None")

Problems = dict[str, str]


@dataclass(frozen=True, slots=True)
class ToolField:
    """A tool in the form."""

    name: str
    title: str


@dataclass(frozen=True, slots=True)
class ModelField:
    """A choice of a model in the form."""

    name: str
    title: str
    options: list[tuple[str, str]]


@router.get("/tenants/{slug}/agent")
async def read_agent(visit: Signed, tenant: PathTenant) -> Response:
    return await _agent_page(visit, tenant)


async def _agent_page(
    visit: Visit,
    tenant: Tenant,
    status: int = 200,
    *,
    form: Form | None = None,
    problems: Problems | None = None,
    asked: str = "",
    trial: Trial | None = None,
) -> Response:
    services: Services = visit.request.app.state.services
    settings = await agent_settings.read(visit.database, tenant.id)
    servers = await agent_settings.list_servers(visit.database, tenant.id)
    evaluations = await evaluation.list_evaluations(visit.database, tenant.id)
    known = await models.list_models(visit.database) if visit.administrator.is_operator else []
    return visit.page(
        "agent.html",
        status,
        tenant=tenant,
        settings=settings,
        revision=settings.revision,
        form=form or _fill_form(settings),
        problems=problems or {},
        model_fields=_list_models(settings, [one.name for one in known]),
        tools=_list_tools(settings, servers),
        steps=[
            ("", f"Default ({services.settings.agent_max_steps})"),
            *((str(number), str(number)) for number in range(1, MOST_STEPS + 1)),
        ],
        longest=LONGEST_INSTRUCTIONS,
        longest_question=LONGEST_QUESTION_TRIED,
        asked=asked,
        trial=trial,
        evaluations=evaluations[:MOST_EVALUATIONS],
    )


def _fill_form(settings: AgentSettings) -> Form:
    return {
        "instructions": settings.instructions,
        "link_hosts": "\n".join(settings.link_hosts),
        "max_steps": str(settings.max_steps or ""),
        "is_debug": "on" if settings.is_debug else "",
        **{f"model_{number}": name for number, name in enumerate(settings.models)},
        **{f"tool.{name}": "on" for name in settings.tools},
        **{f"acting.{name}": "on" for name in settings.acting_tools},
    }


def _list_models(settings: AgentSettings, known: list[str]) -> list[ModelField]:
    """One more field than there are models, so that another one can be added."""
    if not known:
        return []
    number = min(MOST_MODELS, max(FEWEST_MODEL_FIELDS, len(settings.models) + 1))
    options = [(name, name) for name in known]
    return [
        ModelField(f"model_{place}", f"{title} choice", [("", NO_MODEL[place > 0]), *options])
        for place, title in enumerate(ORDER[:number])
    ]


def _list_tools(settings: AgentSettings, servers: list[str]) -> list[ToolField]:
    """Built-in tools, all of each MCP server, and single ones that were chosen."""
    chosen = (*settings.tools, *settings.acting_tools)
    names = dict.fromkeys((*BUILT_IN, *(f"{name}__*" for name in servers), *chosen))
    return [ToolField(name, _describe_tool(name)) for name in names]


def _describe_tool(name: str) -> str:
    server, _, tool = name.partition("__")
    return BUILT_IN.get(name) or f"{server}: {'all its tools' if tool == '*' else tool}"


def _read_form(visit: Visit, form: Form) -> AgentChanges:
    """The whole form; a tenant's administrator sends neither models nor the debug flag."""
    added = form.get("add_tool", "").strip()
    chosen = {
        kind: [name.removeprefix(f"{kind}.") for name in form if name.startswith(f"{kind}.")]
        for kind in ("tool", "acting")
    }
    steps = form.get("max_steps", "").strip()
    given: dict[str, object] = {
        "instructions": form.get("instructions", "").strip(),
        "tools": chosen["tool"] + ([added] if added and added not in chosen["tool"] else []),
        "acting_tools": chosen["acting"],
        "link_hosts": form.get("link_hosts", "").split(),
        "max_steps": parse_number(steps) if steps else None,
    }
    if visit.administrator.is_operator:
        wanted = [form.get(f"model_{number}", "") for number in range(MOST_MODELS)]
        given["models"] = [name for name in wanted if name]
        given["is_debug"] = "is_debug" in form
    return AgentChanges.model_validate(given)


@router.post("/tenants/{slug}/agent")
async def change_agent(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    try:
        changes = _read_form(visit, form)
    except ValidationError as error:
        return await _agent_page(visit, tenant, 422, form=form, problems=explain(error))
    if changes.model_fields_set & OPERATORS_ONLY:
        visit.require_operator()
    expected = frozenset({form.get("revision", "")})
    changing = agent_settings.update(
        visit.database, tenant, changes.list_changes(), expected, visit.change
    )
    problem = await attempt(changing)
    if problem:
        return await _agent_page(visit, tenant, 409, form=form, problems={"": problem})
    return go(f"{CONSOLE}/tenants/{tenant.slug}/agent", "saved")


@router.post("/tenants/{slug}/agent/try")
async def try_agent(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    """Answer with the saved settings; nothing is stored in a conversation."""
    asked = form.get("question", "").strip()[:LONGEST_QUESTION_TRIED]
    settings = await agent_settings.read(visit.database, tenant.id)
    trial = None
    if asked and "\0" not in asked and settings.models:
        services: Services = visit.request.app.state.services
        trial = await services.agent.try_out(
            str(tenant.id), asked, language.detect(asked) or find_language(tenant)
        )
    return await _agent_page(visit, tenant, asked=asked, trial=trial)


def find_language(tenant: Tenant) -> Language:
    """That of the widget."""
    return "cs" if tenant.ui_config.get("language") == "cs" else "en"
