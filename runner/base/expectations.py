"""What a value of a file should have been, in the words of those who write the file; pydantic's speak of Python.

Called by what reads configurations, GPU types, webhooks' secrets and tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import ErrorDetails

#: Pydantic's error type -> what would be right, formatted with the error's context.
_EXPECTED: Final[Mapping[str, str]] = {
    "extra_forbidden": "no key of this name",
    "unexpected_keyword_argument": "no key of this name",
    "missing": "a value (the key is required)",
    "string_type": "a text",
    "path_type": "a path",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "string_too_short": "a text that is not empty",
    "string_pattern_mismatch": "a text of the form {pattern}",
    "string_unicode": "a text without surrogates",
    "invalid_key": "a text",
    "too_short": "at least {min_length} entry",
    "value_error": "{error}",
}


def expectation(details: ErrorDetails) -> str:
    """What would be right: the text after "expected"."""
    context: dict[str, Any] = details.get("ctx", {})
    words = _EXPECTED.get(details["type"])
    return details["msg"] if words is None else words.format(**context)
