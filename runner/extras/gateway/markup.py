"""Descriptions and code as HTML: Markdown without raw HTML, and coloured source.

All other texts of a page are escaped by its template. What is made here is made of text that users and authors of tasks
write, so it has bounds: of bytes, and of the time that colouring takes.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape
from pygments.lexers.c_cpp import CppLexer
from pygments.lexers.c_like import CudaLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, String, _TokenType

from runner.base.safe import visible
from runner.extras.gateway import sizes

#: Token types that have a colour, with their classes in style.css; a type takes that of the nearest one above it.
_CLASSES: Final = {
    Comment: "c",
    Comment.Preproc: "p",
    Comment.PreprocFile: "s",
    Keyword: "k",
    Name.Builtin: "b",
    Name.Class: "f",
    Name.Decorator: "p",
    Name.Function: "f",
    Number: "m",
    String: "s",
}
#: CUDA's words in C++.
_QUALIFIERS: Final = CudaLexer.function_qualifiers | CudaLexer.variable_qualifiers
#: Characters that are coloured, and lines that are shown.
_CHARACTERS: Final = 24_000
_LINES: Final = 1000
#: What is left of a source after this much processor time has no colours.
_COLOURING_S: Final = 0.1
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
    source = "".join(text[:_CHARACTERS].splitlines(keepends=True)[:_LINES])
    beginning = visible(source)
    lexer = {"python": PythonLexer, "py": PythonLexer}.get(language, CppLexer)(ensurenl=False, stripnl=False)
    until_s = time.thread_time() + _COLOURING_S
    parts: list[str] = []
    used = place = 0
    # Lexers look for the ends of lines.
    for start, kind, token in lexer.get_tokens_unprocessed(f"{beginning}\n"):
        word = token[: len(beginning) - start]
        name = "k" if word in _QUALIFIERS else _class_of(kind)
        part = str(escape(word)) if name is None else f'<i class="{name}">{escape(word)}</i>'
        used += len(part.encode())
        if used > most_bytes or time.thread_time() > until_s:
            used -= len(part.encode())
            break
        place = start + len(word)
        parts.append(part)
    rest = beginning[place:]
    last = sizes.cut(rest, max(most_bytes - used, 3))
    whole = source == text and last.endswith("…") <= rest.endswith("…")
    page = Markup("".join(parts)) + last  # noqa: S704 - escaped above
    page += "" if whole or last.endswith("…") else "…"
    return Source(
        shown=page,
        numbers="\n".join(map(str, range(1, len(page.splitlines()) + 1))),
        lines=len(text.splitlines()),
        whole=whole,
        exact=whole and beginning == source.replace("\r\n", "\n"),
    )


@functools.cache
def _class_of(kind: _TokenType) -> str | None:
    while kind is not None:
        if kind in _CLASSES:
            return _CLASSES[kind]
        kind = kind.parent
    return None
