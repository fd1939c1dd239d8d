"""Bundle the widget into the wheel, so that no server has to."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent


class WidgetHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling leaves it open
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # a checkout bundles on first use
        sys.path.insert(0, str(ROOT / "src"))
        from hlas.web.bundle import build_widget  # noqa: PLC0415  # found by the line above

        built = build_widget()
        build_data["force_include"][str(built)] = f"hlas/web/built/{built.name}"
