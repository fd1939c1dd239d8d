"""Loaded by every process of a server under test: its agent is the scripted one."""

import os
from pathlib import Path

from hlas.agent import knowledge
from scripted_agent import ScriptedAgent


def _make(*_: object) -> ScriptedAgent:
    return ScriptedAgent(Path(os.environ["HLAS_RECEIPTS"]))


knowledge.KnowledgeAgent = _make  # type: ignore[assignment,misc]  # in this process only
