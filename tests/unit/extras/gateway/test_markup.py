"""Markdown and coloured code: the two places where users' text becomes HTML by a program and not by escaping alone."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from runner.base.safe import visible
from runner.extras.gateway import markup, sizes

MOST = 12_000
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](data:text/html,x) [d](vbscript:x)",
    "[e](//evil.example) [f](/logout)",
    '[a](https://x.example/"onmouseover=alert`1`)',
    "![a](https://x.example/p.png) ![b](data:image/png;base64,AAAA)",
    "<https://x.example/<script>> <javascript:alert(1)>",
    "```html\n<script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\nx\n```',
    "    <script>indented</script>",
    "`<script>`",
    "&lt;script&gt; &#60;script&#62; &colon;",
    "[a]: javascript:alert(1)\n[a]",
    "# <b>x</b>\n\n## y\n\n###### z",
    "|a<script>|b|\n|:-|-:|\n|<i>|x|\n",
    "<details open ontoggle=alert(1)>",
    "\ud800 \x00 \u202e",
    "'\"><svg onload=alert(1)>",
]
LARGE = [
    "<" * 1_000_000,
    "a" * 1_000_000,
    "[" * MOST,
    "> " * (MOST // 2),
    "- " * (MOST // 2),
    "*a*" * (MOST // 3),
    "|" * 500 + "\n" + "|-" * 250 + "\n" + "|\n" * 5000,
    "![[]()" * 2000,
    "`" * MOST,
    '"' * 1_000_000,
    "'''" + "x" * 1_000_000,
    "\n" * 1_000_000,
    "1 " * 500_000,
    # Where patterns of common libraries look again and again.
    *("a" + part * 100_000 for part in (" ", " b", " b() ", "/**/", "*", "::", "\\\n", 'R"', "'", "match ", "\n ")),
]
#: Tags, and their attributes.
ALLOWED = {
    *((tag, "") for tag in ("p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "em", "strong", "blockquote", "br", "hr")),
    *((tag, "") for tag in ("a", "pre", "code", "i", "div", "table", "thead", "tbody", "tr", "th", "td")),
    *(("a", "href"), ("a", "rel"), ("ol", "start"), ("th", "scope"), ("i", "class")),
    *(("pre", "tabindex"), ("div", "tabindex"), ("div", "class")),
}


class Tags(HTMLParser):
    """The tags that a browser would see, and whether each is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.attributes: set[tuple[str, str]] = set()
        self.addresses: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One tag."""
        self.attributes |= {(tag, name) for name, _ in attrs} | {(tag, "")}
        self.addresses += [str(value) for name, value in attrs if name in ("href", "src")]
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """The end of one."""
        assert self.open.pop() == tag


def tags(text: str) -> Tags:
    """What a browser makes of it."""
    found = Tags()
    found.feed(text)
    found.close()
    assert not found.open
    return found


@pytest.mark.parametrize("text", [*HOSTILE, *LARGE], ids=range(len(HOSTILE) + len(LARGE)))
def test_hostile_text_becomes_harmless_html_of_bounded_size(text: str) -> None:
    """Of tags and attributes that this module writes, and of links to web addresses alone, with `rel`."""
    made = markup.markdown(text, MOST)
    assert len(made.encode()) <= MOST + 100
    found = tags(made)
    assert found.attributes <= ALLOWED
    assert ("a", "href") not in found.attributes or ("a", "rel") in found.attributes
    assert all(address.startswith("https://x.example/") for address in found.addresses)
    for language in ("python", "c++"):
        source = markup.coloured(text, language, MOST)
        assert source.size_bytes <= MOST + 4000
        assert tags(source.shown).attributes <= {("i", ""), ("i", "class")}
        whole = source.shown.striptags() if source.whole else ""
        assert whole.split() == (visible(text).split() if source.whole else [])


def test_a_description_is_formatted() -> None:
    """Paragraphs, code, lists, tables and links; its headings stand below the page's."""
    made = markup.markdown("# Top\n\nUse `x`,\nplease: [docs](https://x.example/a?b=1&c).\n\n- one\n", MOST)
    assert made == (
        "<h3>Top</h3>\n<p>Use <code>x</code>,\nplease: "
        '<a href="https://x.example/a?b=1&amp;c" rel="nofollow noopener">docs</a>.</p>\n<ul>\n<li>one</li>\n</ul>\n'
    )
    fenced = markup.markdown("```python\nreturn 1\n```", MOST)
    assert fenced == '<pre tabindex="0"><code><i class="k">return</i> <i class="m">1</i></code></pre>\n'


@pytest.mark.parametrize(
    ("name", "text", "made"),
    [
        ("a.py", '@jit\ndef f():  # <x>\n    return "s"', '<i class="c"># &lt;x&gt;</i>'),
        ("a.py", "class A:\n    pass", '<i class="k">class</i> <i class="f">A</i>:'),
        ("a.py", '"""# "" \\""""""', '<i class="s">&#34;&#34;&#34;# &#34;&#34; \\&#34;&#34;&#34;&#34;</i>'),
        (
            "a.cu",
            '/* a */\n#if 0 // b\nR"x()")x"',
            '<i class="c">/* a */</i>\n<i class="p">#if 0 </i><i class="c">// b</i>\n<i',
        ),
        ("a.cu", "'\\'' 1'000.5e-3f \"//\"", '<i class="m">1&#39;000.5e-3f</i> <i class="s">&#34;//&#34;</i>'),
        ("a.cu", "__global__ void f() { int x = 1; } // <x>", '<i class="k">__global__</i> <i class="k">void</i> f()'),
    ],
)
def test_code_has_colours_and_numbers(name: str, text: str, made: str) -> None:
    """Whole, with a number for each line."""
    source = markup.coloured(text, markup.language_of(name), MOST)
    assert made in source.shown
    assert source.whole
    assert source.numbers.split() == [str(number + 1) for number in range(source.lines)]
    assert source.shown.striptags().split() == text.split()


@pytest.mark.parametrize(("text", "exact"), [("x\r\ny\n", True), ("x\x0cy", False), ("\ufeffx", False)])
def test_only_what_is_the_source_itself_is_offered_to_be_copied(text: str, *, exact: bool) -> None:
    """What is shown as an escape would be copied as one."""
    source = markup.coloured(text, "python", MOST)
    assert (source.whole, source.exact) == (True, exact)


SHOWS: list[Callable[[str], str]] = [
    lambda text: sizes.cut(text, 400),
    lambda text: sizes.cut_start(text, 400),
    lambda text: markup.markdown(text, 400),
    lambda text: markup.markdown(f"```python\n{text}\n```", 400),
    lambda text: markup.coloured(text, "python", 400).shown,
    lambda text: markup.coloured(text, "c++", 400).shown,
]


@pytest.mark.parametrize("show", SHOWS)
@pytest.mark.parametrize(
    "sign", ["\u202e", "\u2066", "\u2069", "\u200f", "\u061c", "\u200b", "\u00ad", "\ufeff", "\x1b", "\x9b", "\x7f"]
)
def test_what_is_not_seen_is_shown(show: Callable[[str], str], sign: str) -> None:
    """Code on a page reads as it runs: what turns the direction of writing, or is not seen, is an escape there."""
    page = show(f"if user != 'a{sign}b':  # {sign} x\n    go()")
    escape = f"\\x{ord(sign):02x}" if ord(sign) < 0x100 else f"\\u{ord(sign):04x}"
    assert sign not in page
    assert page.count(escape) == 2


@pytest.mark.parametrize("show", SHOWS)
@pytest.mark.parametrize(
    "text",
    ["\u05e9\u05dc\u05d5\u05dd", "\u0645\u06cc\u200c\u0634\u0648\u062f", "\U0001f469\u200d\U0001f52c", "a\u0301\u0327"],
)
def test_scripts_and_symbols_are_shown_as_they_are(show: Callable[[str], str], text: str) -> None:
    """Words from right to left, joined letters and symbols, combined signs; ends of lines as Windows has them."""
    page = show(f"# {text}\r\nx = 1")
    assert text in page
    assert "\\" not in page
    assert "\r" not in page


@pytest.mark.parametrize(
    ("end", "lines"), [("\n", 2), ("\r\n", 2), ("\r", 2), *((end, 1) for end in "\f\v\x1c\x85\u2028")]
)
@pytest.mark.parametrize("language", ["python", "c++"])
def test_a_line_ends_where_it_ends_for_a_compiler(language: str, end: str, lines: int) -> None:
    """A comment has what it has when the code runs, and numbers stand beside their lines."""
    comment = {"python": "#", "c++": "//"}[language]
    source = markup.coloured(f"{comment} a{end}b", language, MOST)
    assert (source.lines, source.numbers.count("\n") + 1) == (lines, lines)
    assert source.shown.endswith("b</i>" if lines == 1 else "\nb")
