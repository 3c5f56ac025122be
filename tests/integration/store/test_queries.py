"""The SQL file, and the page that shows frontends their SQL."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import psycopg
import pytest

from runner.extras.queries import SHARED
from runner.store import Store, queries, schema
from runner.store.base import text_array
from tests.integration.store.conftest import TASK, Bench, Db

STORE = Path(queries.__file__).parent
EXTRAS = STORE.parent / "extras"
PAGE = Path(__file__).parents[3] / "docs" / "frontends.md"


def test_every_query_is_there_and_has_a_use() -> None:
    """No module names a query that is missing, and none in queries.sql is forgotten, nor is a call of a function."""
    code = "".join(path.read_text() for path in STORE.glob("*.py") if path.name != "queries.py")
    assert set(re.findall(r'\b(?:QUERIES\[|self\._(?:one|all|give_up)\()\s*"(\w+)"', code)) == set(queries.QUERIES)


@pytest.mark.parametrize("path", sorted(EXTRAS.rglob("queries.py")), ids=lambda path: path.parent.name)
def test_every_statement_of_a_guest_is_there_and_has_a_use(path: Path) -> None:
    """Of its own and of those that guests share, which any of them may send."""
    module = import_module(".".join(path.relative_to(EXTRAS.parents[1]).with_suffix("").parts))
    own = SHARED if path.parent == EXTRAS else module.QUERIES
    code = "".join(each.read_text() for each in path.parent.rglob("*.py") if each.name != "queries.py")
    assert {name for name in own if f'"{name}"' not in code} == set()
    if own is not SHARED:
        assert set(re.findall(r'\bstore\.(?:all|one)\(\s*"(\w+)"', code)) <= {*own, *SHARED}


def test_a_call_names_its_parameters_and_its_value() -> None:
    """The types are the function's."""
    query = queries.call("pause(gpu_type text, more bigint[]) AS changed")
    assert query.sql == b"SELECT * FROM runner.pause(%(gpu_type)s::text, %(more)s::bigint[]) AS changed"


def test_names_arrive_as_they_are(db: Db) -> None:
    """Whatever is in them that means something to PostgreSQL."""
    names = ["H100", "", "NULL", 'a "b" \\ c', "{d,e}", " f ", "%s"]
    query = "SELECT %s::text[] AS some, %s::text[] AS none"
    assert db.execute(query, (text_array(names), text_array([]))).fetchone() == {"some": names, "none": []}


def test_a_guests_texts_arrive_whatever_is_in_them(store: Store) -> None:
    """PostgreSQL's text has no NUL and no lone surrogate; what is no text arrives as it is."""
    query = queries.parse(
        "-- name: a\n-- Purpose.\nSELECT %(a)s::text AS a, %(b)s::text[] AS b, %(c)s::integer AS c\n"
    )["a"]
    assert store.all(query, a="x\0", b=["\ud800", "y"], c=7) == [{"a": "x\ufffd", "b": ["\ufffd", "y"], "c": 7}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-- name: a\n-- Purpose.\nSELECT 1\n-- name: a\n-- Purpose.\nSELECT 2\n", "there twice"),
        ("-- name: a\n-- Purpose.\n\n", "is empty"),
        ("-- name: a\nSELECT 1\n", "not followed by a line of purpose"),
    ],
)
def test_a_malformed_query_file_is_refused(text: str, message: str) -> None:
    """Twice the same name, no statement, no purpose."""
    with pytest.raises(ValueError, match=message):
        queries.parse(text)


def test_the_statements_on_the_frontend_page_work(bench: Bench, db: Db) -> None:
    """Every SQL block runs as printed, in order, and the submission it makes can be seen and cancelled."""
    bench.board("vectoradd", task={**TASK, "validation": {"version": "v1", "source": "print()"}})
    db.execute("INSERT INTO runner.gpu_type (name, vendor) VALUES ('CPU', 'none')")
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 9
    cursors = (db.execute(block.encode()) for block in blocks)
    answers = [cursor.fetchall() if cursor.description else [] for cursor in cursors]
    assert answers[0] == [{"submit": 1}]
    assert answers[1][0]["state"] == "queued"
    assert [{"enqueue": 1}] in answers
    first = [answer[0] for answer in answers if answer]
    assert all(answer in first for answer in ({"cancel": 2}, {"rerun": 2}, {"invalidate": 0}))


def test_the_statements_in_the_readme_work(bench: Bench, db: Db) -> None:
    """Every statement of its SQL block runs as printed."""
    bench.board("vectoradd")
    block = re.search(r"```sql\n(.*?)```", (PAGE.parents[1] / "README.md").read_text(), re.DOTALL)
    assert block is not None
    cursor = db.execute(block[1].encode())
    answers = [cursor.fetchall()]
    while cursor.nextset():
        answers.append(cursor.fetchall())
    assert len(answers) == 4
    assert answers[0] == [{"submit": 1}]
    assert answers[1][0]["state"] == "queued"


def test_the_schema_understands_the_statements_of_the_other_pages(db: Db) -> None:
    """Of those that read or change rows, in blocks and in sentences: names, columns and arguments are there."""
    pages = {path.name: path.read_text() for path in PAGE.parent.glob("*.md") if path != PAGE}
    statements = [
        (name, " ".join(statement.split()))
        for name, text in pages.items()
        for shown in re.findall(r"(?ms)^ *```sql\n(.*?)^ *```|`([A-Z]{4,}\s[^`]+)`", text)
        for statement in "".join(shown).split(";")
    ]
    asked = [(name, text) for name, text in statements if re.match(r"(?:SELECT|UPDATE) ", text)]
    assert len(asked) > 5
    for number, (name, text) in enumerate(asked):
        try:
            # psql runs what such a statement prints.
            plain = text.removesuffix(r"\gexec").replace("= JOB", "= 1")
            db.execute(f"PREPARE page_{number} AS {plain}".encode())
        except psycopg.Error as error:
            pytest.fail(f"{name}: {text}: {error}")


def test_the_frontend_page_lists_every_error_the_functions_raise() -> None:
    """The table of SQLSTATEs and the SQL agree."""
    sql = "".join(path.read_text() for path in schema.paths("functions"))
    raised = set(re.findall(r"'(KR\d{3})'", sql))
    assert raised == set(re.findall(r"^\| (KR\d{3}) \|", PAGE.read_text(), re.MULTILINE))
