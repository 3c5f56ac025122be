"""The steps that ask no model: the best row of a module, splits, lengths. And which answers the other steps accept."""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runner.base.errors import DataError
from runner.extras.trainers.kernelbook import best, difficulty, lengths, prompts, scripts, synthesize, upload
from runner.extras.trainers.kernelbook.asking import Request
from runner.extras.trainers.kernelbook.enrich import Step
from runner.extras.trainers.kernelbook.journal import Answer
from runner.extras.trainers.kernelbook.rows import read


def write(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Rows as JSONL."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def evaluation(number: int, reward: float | None, name: str = "Net", **more: object) -> dict[str, Any]:
    """An evaluation row."""
    return {
        "example_id": number,
        "prompt": [{"role": "user", "content": f"task {number}"}],
        "completion": [{"role": "assistant", "content": f"solution {number}", "reasoning": None}],
        "reward": reward,
        "info": {"module_name": name, "python_code": f"class {name}:\n    x = {number}"},
        **more,
    }


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (evaluation(0, 0.85), "the reward is not above 0.85"),
        (evaluation(0, 0.8500001), None),
        (evaluation(0, None), "the reward is missing or not finite"),
        (evaluation(0, math.nan), "the reward is missing or not finite"),
        (evaluation(0, math.inf), "the reward is missing or not finite"),
        (evaluation(0, 2, completion=[]), "the completion has no content"),
        (evaluation(0, 2, completion=[{"role": "assistant", "content": None}]), "the completion has no content"),
        (evaluation(0, 2, completion=[{"role": "user", "content": "so?"}]), "the completion has no content"),
        (evaluation(0, 2, completion=[{"role": "assistant", "content": [{"text": "x"}]}]), None),
        (evaluation(0, 2, prompt=None, info="{}"), "there is neither a prompt nor the reference's code"),
    ],
)
def test_which_rows_are_rated(row: dict[str, Any], expected: str | None) -> None:
    """A reward strictly above the threshold, and something to rate."""
    question = difficulty.step().question(row)
    assert isinstance(question, Request) if expected is None else question == expected


@pytest.mark.parametrize(
    "value",
    [
        pa.array([1 << 62], pa.timestamp("us")),
        pa.array([1 << 30], pa.int32()).cast(pa.date32()),
        pa.array([0], pa.timestamp("us", tz="Mars/Olympus")),
        pa.StringArray.from_buffers(1, pa.py_buffer(struct.pack("ii", 0, 1)), pa.py_buffer(b"\xff")),
    ],
    ids=["moment", "day", "zone", "text"],
)
def test_a_value_that_python_lacks_is_named(tmp_path: Path, value: pa.Array) -> None:
    """As in psycopg #1251, of parquet: a sentence with the file, no traceback."""
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"at": value}), file)
    with pytest.raises(DataError, match=r"cannot read .*rows\.parquet"):
        list(read(file))


def test_a_column_may_hold_more_text_than_an_array(tmp_path: Path) -> None:
    """As in ray #29492, datasets #6656 and #6595: no column of more than 2 GiB, nor its group, is one array."""
    # Never written to, so it takes no memory.
    data = pa.py_buffer(mmap.mmap(-1, 1 << 30))
    long = pa.StringArray.from_buffers(1, pa.py_buffer(struct.pack("ii", 0, 1 << 30)), data)
    forms: tuple[Callable[[pa.Array], pa.Array], ...] = (
        lambda texts: texts,
        lambda texts: pa.StructArray.from_arrays([texts], ["python_code"]),
        lambda texts: pa.ListArray.from_arrays([0, 1], pa.StructArray.from_arrays([texts], ["content"])),
    )
    for form in forms:
        chunks = [form(texts) for texts in (long, long, pa.array(["short"]))]
        table = pa.table({"number": pa.chunked_array([[0], [1], [2]]), "column": pa.chunked_array(chunks)})
        assert upload.part(table, [2]).to_pylist() == [{"number": 2, "column": chunks[2][0].as_py()}]
    file = write(tmp_path / "rows.jsonl", [evaluation(number, 1.0) for number in range(2500)])
    upload.run(upload.TARGETS[2], file, to=tmp_path, repository=None, token=None)
    (made,) = tmp_path.rglob("*.parquet")
    written = pq.read_metadata(made)
    assert [written.row_group(number).num_rows for number in range(written.num_row_groups)] == [1000, 1000, 500]


@pytest.mark.parametrize("step", [difficulty.step(), prompts.step(), synthesize.step()], ids=lambda step: step.name)
def test_a_model_may_think_before_it_answers(step: Step) -> None:
    """As in agent-native #4861, dotnet/extensions #7002: the limit of tokens holds for both together."""
    question = step.question({**evaluation(0, 1.0), "module_name": "Net"})
    assert isinstance(question, Request)
    assert question.parameters["max_tokens"] >= 8192


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("<difficulty>low</difficulty>", "low"),
        ("<DIFFICULTY>\nMedium </difficulty>", "medium"),
        ("not <difficulty>low</difficulty> but <difficulty>high</difficulty>", "high"),
        ("<difficulty>huge</difficulty>", None),
        ("low", None),
        ("", None),
    ],
)
def test_the_level_of_an_answer(text: str, level: str | None) -> None:
    """In a tag, in any letter case; the last one counts."""
    assert difficulty.level_of(text) == level
    assert (difficulty.check(text) is None) == (level is not None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<specification>Adds two tensors.</specification>", None),
        ("<specification></specification>", "the answer has no tag <specification>"),
        ("Adds two tensors.", "the answer has no tag <specification>"),
        ("<specification>Use ```x```</specification>", "the specification holds a code fence"),
        ("<specification>Call tl.load</specification>", "the specification holds a call of triton.language"),
        ("<specification>Best in Triton.</specification>", "the specification holds the word Triton"),
        ("<specification>\nimport torch\n</specification>", "the specification holds a line of Python"),
    ],
)
def test_what_a_specification_may_not_hold(text: str, why: str | None) -> None:
    """Neither code nor hints."""
    assert prompts.check(text) == why


@pytest.mark.parametrize(
    "line",
    [
        "import torch.nn as nn",
        "from torch import (nn,",
        "from torch import *",
        "class A(nn.Module):",
        "class A:",
        "    def forward(self, x) -> torch.Tensor:",
        "    def forward(self,",
        "@torch.no_grad()",
    ],
)
def test_a_line_of_python_is_none_of_prose(line: str) -> None:
    """Wherever it stands, whatever ends the lines."""
    text = f"<specification>The module does this:\n\n{line}\n\nIt has no state.</specification>"
    for each in (text, text.replace("\n", "\r\n")):
        assert prompts.check(each) == "the specification holds a line of Python"


@pytest.mark.parametrize(
    "prose",
    [
        "The module subtracts the mean\nfrom each element of a row.",
        "The loss weighs each\nclass by the weight that the constructor takes\nfor it.",
        "The output is the\n  class with the largest probability\n",
        "The\nimport of other modules is\nnot needed",
        "class LinearNew takes two arguments",
    ],
)
def test_prose_in_short_lines_is_no_python(prose: str) -> None:
    """Whatever word a line begins with."""
    assert prompts.check(f"<specification>{prose}</specification>") is None


def test_the_best_row_of_each_module(tmp_path: Path) -> None:
    """Highest reward, first of equal ones, sorted by falling reward; a module's name is in the row or in its info."""
    rows = [
        evaluation(0, 1.0, "A"),
        evaluation(1, 1.5, "A"),
        evaluation(2, 1.5, "A"),
        evaluation(3, 0.9, "B", info=json.dumps({"module_name": "B"})),
        {**evaluation(4, 1.2, "C"), "info": {}, "module_name": "C"},
        evaluation(5, math.nan, "D"),
    ]
    made = best.run(write(tmp_path / "in.jsonl", rows), tmp_path / "out" / "best.jsonl")
    assert [row["example_id"] for row in read(tmp_path / "out" / "best.jsonl")] == [1, 4, 3]
    assert (made.rows_in, made.rows_out) == (6, 3)
    assert made.dropped == {"another row of the module is better": 2, "the reward is missing or not finite": 1}
    assert made.facts == {"names with several codes": 1, "for example": "A"}


def test_the_best_row_of_each_code(tmp_path: Path) -> None:
    """By code, comments and layout make no difference, and names none either."""
    rows = [
        evaluation(0, 1.0, "Net", info={"module_name": "Net", "python_code": "x = 1  # one"}),
        evaluation(1, 2.0, "Other", info={"module_name": "Other", "python_code": "\nx=1"}),
        evaluation(2, 1.0, "Net", info={"module_name": "Net", "python_code": "x = 2"}),
        evaluation(3, 1.0, "Net", info={"module_name": "Net", "python_code": "x = " + "+".join("1" * 100_000)}),
        evaluation(4, 1.0, "Net", info={"module_name": "Net", "python_code": "x = " + "lambda: " * 20_000 + "1"}),
    ]
    best.run(write(tmp_path / "in.jsonl", rows), tmp_path / "best.jsonl", by_code=True)
    assert [row["example_id"] for row in read(tmp_path / "best.jsonl")] == [1, 2, 3, 4]


def test_a_row_without_a_module_is_named(tmp_path: Path) -> None:
    """Rather than all of them called unknown."""
    file = write(tmp_path / "in.jsonl", [evaluation(0, 1.0), {"reward": 1.0}])
    with pytest.raises(DataError, match=r"in\.jsonl, line 2: neither the row nor its info has module_name"):
        best.run(file, tmp_path / "best.jsonl")
    assert not (tmp_path / "best.jsonl").exists()


@pytest.mark.parametrize(("rows", "training", "validation"), [(7181, 6462, 719), (2967, 2670, 297)])
def test_the_published_splits_have_these_sizes(rows: int, training: int, validation: int) -> None:
    """And the rows of a group are on one side."""
    groups = [str(n // 3) for n in range(rows)]
    grouped = upload.by_group(groups)
    assert (len(grouped[0]), len(grouped[1])) == (training, validation)
    assert not {groups[n] for n in grouped[0]} & {groups[n] for n in grouped[1]}


def test_an_upload_to_a_folder_is_a_data_set(tmp_path: Path) -> None:
    """Splits, columns and a card; a column without any value holds text; a second upload replaces the first."""
    import datasets

    rows = [evaluation(n, 1.0 + n, f"Net{n % 20}", oai_tools=None, licenses=["MIT"]) for n in range(100)]
    file = write(tmp_path / "filtered.jsonl", rows)
    planned = upload.run(upload.TARGETS[0], file, to=tmp_path / "sets", repository=None, token=None, dry_run=True)
    assert planned.facts["would go to"] == str(tmp_path / "sets" / "filtered")
    assert list(tmp_path.iterdir()) == [file]
    for _ in range(2):
        made = upload.run(upload.TARGETS[0], file, to=tmp_path / "sets", repository=None, token=None)
    assert made.facts == {"rows of train": 90, "rows of validation": 10}
    loaded = datasets.load_dataset(str(tmp_path / "sets" / "filtered"), cache_dir=str(tmp_path / "cache"))
    assert {name: part.num_rows for name, part in loaded.items()} == {"train": 90, "validation": 10}
    found = sorted(row["example_id"] for part in loaded.values() for row in part)
    assert found == list(range(100))
    card = (tmp_path / "sets" / "filtered" / "README.md").read_text()
    assert "licences of the modules, as their rows say: MIT (100)" in card
    assert not list(tmp_path.glob("**/.*"))


@pytest.mark.parametrize("rows", [1, 3])
def test_a_small_upload_is_a_data_set(tmp_path: Path, rows: int) -> None:
    """As of a first try, of one module: its rows are on one side, and readers refuse a side without rows."""
    import datasets

    file = write(tmp_path / "filtered.jsonl", [evaluation(n, 1.0, "Net", python_code="x = 1") for n in range(rows)])
    upload.run(upload.TARGETS[0], file, to=tmp_path / "sets", repository=None, token=None)
    loaded = datasets.load_dataset(str(tmp_path / "sets" / "filtered"), cache_dir=str(tmp_path / "cache"))
    assert {name: part.num_rows for name, part in loaded.items()} == {"train": rows}


def test_a_file_that_is_no_jsonl_is_named(tmp_path: Path) -> None:
    """Parquet, a folder, a broken line, another encoding: by each step that takes a file."""
    (tmp_path / "rows.parquet").write_bytes(b"PAR1\xff\xfe")
    (tmp_path / "latin.jsonl").write_bytes(b'{"a": "\xe9"}\n')
    (tmp_path / "broken.jsonl").write_text(json.dumps(evaluation(0, 1.0)) + "\n{")
    for name, said in (
        ("rows.parquet", "is no JSONL file"),
        ("latin.jsonl", r"latin\.jsonl is no JSONL file: it has bytes that are no UTF-8"),
        ("broken.jsonl", r"broken\.jsonl, line 2: expected a JSON object"),
        ("nowhere.jsonl", "there is no .*nowhere"),
        (".", "cannot read"),
    ):
        with pytest.raises(DataError, match=said):
            best.run(tmp_path / name, tmp_path / "best.jsonl")
        with pytest.raises(DataError, match=said):
            upload.look(tmp_path / name)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "has no rows, so there is nothing to upload"),
        ([{"a": 1}, {"b": 1}], "line 2 has other columns than line 1: a, b"),
    ],
)
def test_rows_that_are_no_data_set_are_refused(tmp_path: Path, rows: list[dict[str, Any]], said: str) -> None:
    """Empty or mixed: nothing is written."""
    file = write(tmp_path / "rows.jsonl", rows)
    with pytest.raises(DataError, match=said):
        upload.run(upload.TARGETS[2], file, to=tmp_path / "sets", repository=None, token=None)
    assert not (tmp_path / "sets").exists()


def test_a_tokenizer_that_is_not_there_is_an_error_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No network is needed to say so."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="cannot load the tokenizer"):
        lengths.load_tokenizer(str(tmp_path / "nowhere"), None)


def test_scripts_have_the_published_names(tmp_path: Path) -> None:
    """And overwrite nothing of others."""
    made = scripts.write(tmp_path)
    assert [path.name for path in made] == list(scripts.SCRIPTS)
    assert scripts.write(tmp_path) == made
    made[0].write_text("something else")
    with pytest.raises(DataError, match="exists and is another file"):
        scripts.write(tmp_path)


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ([{"role": "user", "content": "as it is"}], ["as it is"]),
        ([{"role": "user", "content": [{"type": "text", "text": "x"}]}], ["x"]),
        ([{"content": "x"}, {"role": None, "content": "y"}, 3], ["x", "y"]),
        ([{"role": "user", "content": ""}], []),
        ("", []),
        (None, []),
    ],
)
def test_prompts_for_kernels(prompt: object, texts: list[str]) -> None:
    """Conversations are sent as they are; without a prompt nothing is asked."""
    question = synthesize.step().question({"prompt": prompt})
    sent = [{"role": "user", "content": text} for text in texts]
    assert (question.messages if isinstance(question, Request) else question) == (sent or "there is no prompt")


def test_rollouts_are_requests_of_their_own() -> None:
    """Else the journal would answer the second with the first; and text gets the class's name and the markers."""
    row = {"prompt": "Adds.", "module_name": "Net"}
    first, second = (synthesize.step(number).question(row) for number in (0, 1))
    assert isinstance(first, Request)
    assert isinstance(second, Request)
    assert first.name("m") != second.name("m")
    assert "NetNew" in first.messages[0]["content"]
    assert first.messages[0]["content"].endswith("Adds.")
    answer = Answer(good=True, text="BEGIN_PYTHON\nclass NetNew: pass\nEND_PYTHON", reasoning="so", took_ms=7.0)
    made = synthesize.step().result(row, answer)
    assert made["completion"] == [{"role": "assistant", "content": answer.text, "reasoning": "so"}]
    assert made["generation_ms"] == 7.0
    assert synthesize.check("no code") == "the answer has no class"


@pytest.mark.parametrize("rows", [1, 3, 10, 99, 100, 101, 199, 1000])
@pytest.mark.parametrize("coverage", lengths.COVERAGES)
def test_a_recommended_length_holds_its_share_of_the_rows(rows: int, coverage: float) -> None:
    """At least, and no shorter one does; few rows, one of them long, are no exception."""
    tokens = [*range(1000, 1000 + rows - 1), 60_000]
    found = lengths.figures(tokens)
    holding = [each for each in lengths.LENGTHS if sum(n <= each for n in tokens) * 100 >= coverage * rows]
    assert found["recommended"][f"{coverage:g}"] == min(holding)
    assert (sum(found["buckets"].values()), found["buckets"]["65536"]) == (rows, 1)
    assert found["longer_than"]["2048"] == sum(n > 2048 for n in tokens)
