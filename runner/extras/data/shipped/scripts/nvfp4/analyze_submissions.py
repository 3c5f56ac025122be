"""The helpers of `analyze_submissions.py` two folders above, for programs that run in this folder."""

import importlib.util
import sys
from pathlib import Path

_PATH = Path(__file__).resolve().parents[2] / "analyze_submissions.py"
_SPEC = importlib.util.spec_from_file_location("_exported_analyze_submissions", _PATH)
if _SPEC is None or _SPEC.loader is None:
    raise ImportError(f"cannot load {_PATH}")
_MODULE = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = _MODULE
_SPEC.loader.exec_module(_MODULE)

__all__ = list(_MODULE.__all__)
globals().update({name: getattr(_MODULE, name) for name in __all__})
