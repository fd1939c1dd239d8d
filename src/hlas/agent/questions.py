"""The question of a run to the agent, and the fallback sentence."""

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from hlas.agent import Question, phrases
from hlas.agent.options import Options
from hlas.conversations.runs import Briefing, Run
from hlas.knowledge import language
from hlas.knowledge.language import Language


def make_question(run: Run, briefing: Briefing) -> Question:
    *earlier, text = briefing.texts or ("",)
    return Question(
        run.tenant_id,
        run.conversation_id,
        text,
        _find_language(briefing),
        tuple(earlier),
        run.attempt,
        run_id=run.id,
        reply_to=run.reply_to,
        has_model=briefing.has_model,
        options=Options.from_metadata(briefing.metadata),
        confirmed=_find_id(briefing.metadata, "confirm"),
        declined=_find_id(briefing.metadata, "decline"),
        context=briefing.context,
    )


def _find_language(briefing: Briefing) -> Language:
    """The language of the last message that shows one, else the language of the widget."""
    for text in reversed((*briefing.context, *briefing.texts)):
        if detected := language.detect(text):
            return detected
    return "cs" if briefing.language == "cs" else "en"


class HasFallback(Protocol):
    """A tenant's own sentences: of one language, and of the others."""

    @property
    def fallback_texts(self) -> Mapping[str, str]: ...

    @property
    def fallback_text(self) -> str | None: ...


def find_fallback(given: HasFallback, chosen: Language) -> str:
    own = given.fallback_texts.get(chosen) or given.fallback_text
    return own or phrases.FALLBACK[chosen]


def _find_id(metadata: Mapping[str, object], name: str) -> str | None:
    """A visitor's metadata may be anything."""
    try:
        return str(UUID(str(metadata[name])))
    except (KeyError, ValueError):
        return None
