"""Descriptions and code as HTML: Markdown without raw HTML, and coloured source.

All other texts of a page are escaped by its template. What is made here is made of text that users and authors of tasks
write, so it has bounds: of bytes, and of the time that colouring takes. A pattern holds up the whole process while it
looks, so none may look at a character again for each one before it, as those of common libraries do.
"""

from __future__ import annotations

import builtins
import functools
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from runner.base.safe import visible
from runner.extras.gateway import sizes

#: What a source is made of, by the classes of style.css: comments, strings, what stands before the compiler (`p`),
#: numbers and, in `w`, words. Each alternative that begins to match does so to its end, though no end is there.
_PYTHON: Final = re.compile(
    r"""
      (?P<c>\#.*)
    | (?P<s>[bfrtuBFRTU]{0,2}(?:
          "{3}(?:[^\\]|\\[\s\S])*?(?:"{3}|\Z) | '{3}(?:[^\\]|\\[\s\S])*?(?:'{3}|\Z)
        | "(?:[^"\\\n]|\\[\s\S])*"? | '(?:[^'\\\n]|\\[\s\S])*'?))
    | (?P<p>@[^\W\d]\w*)
    | (?P<m>\.?\d(?:[\w.]|(?<=[eE])[+-])*)
    | (?P<w>[^\W\d]\w*)
    """,
    re.VERBOSE,
)
_CPP: Final = re.compile(
    r"""
      (?P<c>//.*|/\*[\s\S]*?(?:\*/|\Z))
    | (?P<s>(?:[LUu]|u8)?(?:
          R"(?P<end>[^\\()\s]{0,16})\([\s\S]*?(?:\)(?P=end)"|\Z)
        | "(?:[^"\\\n]|\\[\s\S])*"? | '(?:[^'\\\n]|\\.)*'?))
    | (?P<p>^[ \t]*\#(?:[^\n\\/]|\\[\s\S]|/(?![/*]))*)
    | (?P<m>\.?\d(?:[\w.]|'(?=\w)|(?<=[eEpP])[+-])*)
    | (?P<w>[^\W\d]\w*)
    """,
    re.VERBOSE | re.MULTILINE,
)
#: Of C++ and CUDA.
_CPP_KEYWORDS: Final = (
    "alignas alignof asm auto bool break case catch char class co_await co_return co_yield concept const consteval "
    "constexpr constinit const_cast continue decltype default delete do double dynamic_cast else enum explicit "
    "export extern final float for friend goto if inline int long mutable namespace new noexcept operator override "
    "private protected public register reinterpret_cast requires restrict return short signed sizeof static "
    "static_assert static_cast struct switch template this thread_local throw try typedef typeid typename union "
    "unsigned using virtual void volatile while size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t "
    "uint64_t uintptr_t __constant__ __device__ __forceinline__ __global__ __host__ __noinline__ __restrict__ "
    "__shared__"
)
#: The classes of words.
_PYTHON_WORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("self", "cls", *(name for name in dir(builtins) if name.islower() and name[0] != "_")), "b"),
    **dict.fromkeys(keyword.kwlist, "k"),
}
_CPP_WORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("true", "false", "NULL", "nullptr"), "b"),
    **dict.fromkeys(_CPP_KEYWORDS.split(), "k"),
}
#: Words before what they give a name to.
_NAMING: Final = ("def", "class", "struct", "union", "enum")
#: Characters that are coloured, and lines that are shown.
_CHARACTERS: Final = 24_000
_LINES: Final = 1000
_LINE: Final = re.compile(r".*\n|.+")
#: A heading of a description stands below the page's own two levels.
_HEADINGS_BELOW: Final = 2
#: Texts whose HTML is kept: descriptions and templates change seldom.
_KEPT: Final = 64


@functools.lru_cache(_KEPT)
def markdown(text: str, most_bytes: int) -> Markup:
    """A description as HTML of at most so many bytes; one that would have more is cut and not formatted."""
    cut = sizes.cut(text, most_bytes)
    if len(text) <= most_bytes:
        tokens = _parser().parse(text)
        _lower_headings(tokens)
        page = visible(_parser().renderer.render(tokens, _parser().options, {}))
        if len(page.encode()) <= most_bytes:
            return Markup(page)  # noqa: S704 - the renderer escapes, and takes no raw HTML
    return Markup('<div class="text">{}</div>').format(cut)


@functools.cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    parser.validateLink = _is_web_address  # type: ignore[method-assign]  # as its manual says
    parser.add_render_rule("link_open", _link)
    parser.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    parser.add_render_rule("th_open", lambda *_: '<th scope="col">')
    parser.add_render_rule("td_open", lambda *_: "<td>")
    parser.add_render_rule("fence", _block)
    parser.add_render_rule("code_block", _block)
    return parser


def _is_web_address(url: str) -> bool:
    """Whether a link may lead there."""
    return url.lower().startswith(("https://", "http://"))


def _link(_: object, tokens: list[Token], index: int, *__: object) -> str:
    return f'<a href="{escape(tokens[index].attrGet("href"))}" rel="nofollow noopener">'


def _block(_: object, tokens: list[Token], index: int, *__: object) -> str:
    token = tokens[index]
    language = token.info.strip().lower()
    shown = coloured(token.content.removesuffix("\n"), language, 8 * len(token.content)).shown
    return f'<pre tabindex="0"><code>{shown}</code></pre>\n'


def _lower_headings(tokens: list[Token]) -> None:
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + _HEADINGS_BELOW)}"


def language_of(file_name: str) -> str:
    """The language of a source file."""
    return "python" if file_name.endswith(".py") else "c++"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A source as a page shows it."""

    shown: Markup
    #: The numbers of the lines that are shown, one a line, and how many lines there are.
    numbers: str
    lines: int
    #: Whether all of it is shown, and whether what a browser copies of it is the source itself.
    whole: bool
    exact: bool

    @property
    def size_bytes(self) -> int:
        """What it takes of a page."""
        return len(self.shown.encode()) + len(self.numbers)


@functools.lru_cache(_KEPT)
def coloured(text: str, language: str, most_bytes: int) -> Source:
    """The beginning of a source: at most so many bytes of HTML, with classes for what style.css colours."""
    every = sizes.LINE_END.sub("\n", text)
    source = "".join(_LINE.findall(every[:_CHARACTERS])[:_LINES])
    beginning = visible(source)
    pattern, words = (_PYTHON, _PYTHON_WORDS) if language in ("python", "py") else (_CPP, _CPP_WORDS)
    parts: list[str] = []
    used = place = 0
    before = ""
    # A backslash at the end has something after it.
    for match in pattern.finditer(f"{beginning}\n"):
        word = match[0][: len(beginning) - match.start()]
        name = match.lastgroup
        if name == "w":
            name, before = "f" if before in _NAMING and word not in words else words.get(word), word
        part = str(escape(beginning[place : match.start()]))
        part += str(escape(word)) if name is None else f'<i class="{name}">{escape(word)}</i>'
        used += len(part.encode())
        if used > most_bytes:
            used -= len(part.encode())
            break
        place = match.start() + len(word)
        parts.append(part)
    rest = beginning[place:]
    last = sizes.cut(rest, max(most_bytes - used, 3))
    whole = source == every and last.endswith("…") <= rest.endswith("…")
    page = Markup("".join(parts)) + last  # noqa: S704 - escaped above
    page += "" if whole or last.endswith("…") else "…"
    return Source(
        shown=page,
        numbers="\n".join(map(str, range(1, len(page.splitlines()) + 1))),
        lines=len(_LINE.findall(every)),
        whole=whole,
        exact=whole and beginning == text.replace("\r\n", "\n"),
    )
