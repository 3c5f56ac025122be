"""Competition files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from runner.base.errors import TaskError
from runner.base.gpu_types import Registry
from runner.extras.boards.competition import load_competition
from runner.task_format import load_folder
from tests.unit.task_format.samples import changed, write

ROOT = Path(__file__).resolve().parents[4]


def competition(folder: Path, problems: str, head: str = "name: Contest\n") -> Path:
    """Write a competition file beside the sample task."""
    write(folder, changed(gpus=["T4"]))
    path = folder / "contest.yaml"
    path.write_text(f"{head}problems:\n{problems}")
    return path


@pytest.mark.parametrize("text", ['""', "null"])
def test_an_empty_deadline_is_none(tmp_path: Path, text: str) -> None:
    """Others: tests/acceptance/strangers/test_date_offsets.py."""
    loaded = load_competition(competition(tmp_path, f"  - {{name: add, directory: adder, deadline: {text}}}\n"))
    assert loaded[0].deadline is None


def test_a_problem_has_its_folder_and_its_own_types(tmp_path: Path) -> None:
    """The folder is loaded under the problem's name; gpus may be the file's or the task's."""
    path = competition(
        tmp_path,
        "  - {name: a, directory: adder, gpus: [H100, CPU]}\n  - {name: b, directory: ./adder}\n",
        head="name: Contest\ndescription: Nice.\ndeadline: never\n",
    )
    loaded = load_competition(path)
    assert [(problem.name, problem.folder.name, problem.gpus) for problem in loaded] == [
        ("a", "a", ("H100", "CPU")),
        ("b", "b", ()),
    ]
    assert loaded[1].folder.gpus == ("T4",)


def test_a_board_of_the_judged_folders_has_its_task_from_there(tmp_path: Path) -> None:
    """By its name, with the deadline and GPU types of the file; the file's own folder need not even be there."""
    ours = competition(tmp_path / "ours", "  - {name: add, directory: adder}\n")
    text = "  - {name: add, directory: nowhere, deadline: 2031-01-01, gpus: [L4]}\n  - {name: more, directory: adder}\n"
    add, more = load_competition(competition(tmp_path / "theirs", text), judged=ours.parent)
    assert (add.judged, more.judged) == (ours.parent / "adder", None)
    assert add.folder.task == load_folder(ours.parent / "adder").task
    assert (add.gpus, add.deadline) == (("L4",), datetime(2031, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        ("  - {name: a, directory: nowhere}\n", "problems[0].directory: found 'nowhere', which is no folder"),
        ("  - {name: a, directory: ../..}\n", "problems[0].directory: found '../..', which leaves the repository"),
        ('  - {name: a, directory: "a\\0b"}\n', r"problems[0].directory: found 'a\x00b', which is no folder"),
        ("  - {name: a, directory: loop}\n", "problems[0].directory: found 'loop', which is no folder"),
        (f"  - {{name: a, directory: {'a' * 999}}}\n", "problems[0].directory: found 'aaa"),
        (
            f"  - {{name: a, directory: adder, deadline: 0x{'f' * 5000}}}\n",
            "problems[0].deadline: found a number of thousands of digits, expected",
        ),
        (
            "  - {name: a, directory: adder}\n  - {name: a, directory: adder}\n",
            "problems[1].name: found 'a' a second time, expected different names",
        ),
    ],
)
def test_a_wrong_competition_is_refused(tmp_path: Path, problems: str, message: str) -> None:
    """Refusals name the file and the key; nothing is loaded in part."""
    path = competition(tmp_path, problems)
    (path.parent / "loop").symlink_to("loop")
    with pytest.raises(TaskError) as caught:
        load_competition(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_all_mistakes_of_a_competition_are_named_at_once(tmp_path: Path) -> None:
    """Those of its own keys, then those of the problems' names and folders."""
    path = competition(tmp_path, "  - {name: a, directory: x, deadline: soon}\n  - {name: 1, directory: y}\n")
    with pytest.raises(TaskError, match=r"(?s)problems\[0\]\.deadline.*problems\[1\]\.name"):
        load_competition(path)
    path = competition(tmp_path / "b", "  - {name: a, directory: x}\n  - {name: a, directory: y}\n")
    with pytest.raises(TaskError, match=r"(?s)\[0\]\.directory.*\[1\]\.name.*\[1\]\.directory"):
        load_competition(path)


def test_two_lists_of_problems_are_refused(tmp_path: Path) -> None:
    """A second `problems` key would silently replace the first, as has happened in published files."""
    path = competition(tmp_path, "  - {name: a, directory: adder}\nproblems:\n  - {name: b, directory: adder}\n")
    with pytest.raises(TaskError, match="line 4: found the key 'problems' a second time"):
        load_competition(path)


#: File, GPU types, and boards: each with the folder of its task, if that is called otherwise.
BOARDS = (
    ("starter", "CPU", "identity vectoradd nvfp4_gemv"),
    ("amd", "MI300", "amd-identity amd-fp8-mm amd-mixture-of-experts:amd_moe amd-mla-decode"),
    ("amd", "MI300x8", "amd-all2all amd-gemm-rs amd-ag-gemm"),
    ("linalg", "B200", "qr qr_v2 eigh cholesky"),
    ("nvfp4", "NVIDIA", "nvfp4_gemv nvfp4_gemm nvfp4_dual_gemm"),
    ("nvfp4", "B200 NVIDIA", "nvfp4_group_gemm"),
    ("amd_202602", "MI355X", "amd-mxfp4-mm:mxfp4_mm amd-moe-mxfp4:moe_mxfp4 amd-mixed-mla:mixed_mla"),
    ("helion", "B200", "causal_conv1d fp8_quant gated_deltanet_chunk_fwd_h gated_deltanet_chunk_fwd_o"),
    ("helion", "B200", "gated_deltanet_recompute_w_u"),
    ("bioml", "B200 H100 A100 MI300", "trimul"),
    ("princeton", "A100", "princeton_cross_entropy:cross_entropy"),
    ("pmpp", "B200 H100 A100 L4", "conv2d_v2:conv2d grayscale_v2:grayscale histogram_v2:histogram matmul_v2:matmul"),
    ("pmpp", "B200 H100 A100 L4", "prefixsum_v2:prefixsum sort_v2:sort vectoradd_v2:vectoradd"),
    ("pmpp", "B200 H100 A100 L4", "vectorsum_v2:vectorsum"),
)


def test_every_shipped_task_is_in_a_competition() -> None:
    """Under the public boards' names, on types that its folder offers and the registry knows; one task to a name."""
    problems, registry = ROOT / "tasks" / "problems", Registry.load()
    expected = {
        (file, board.partition(":")[0]): (board.partition(":")[2] or board.replace("-", "_"), tuple(gpus.split()))
        for file, gpus, boards in BOARDS
        for board in boards.split()
    }
    loaded = {
        (path.stem, problem.name): problem
        for path in sorted(problems.glob("*.yaml"))
        for problem in load_competition(path)
    }
    assert {place: problem.gpus for place, problem in loaded.items()} == {
        place: gpus for place, (_, gpus) in expected.items()
    }
    for place, problem in loaded.items():
        directory, gpus = expected[place]
        assert problem.folder.task == load_folder(problems / directory).task, place
        assert set(gpus) <= set(problem.folder.gpus), place
        assert [registry.get(gpu).name for gpu in gpus] == list(gpus), place
        assert problem.deadline is None, place
        assert all(other.folder.task == problem.folder.task for same, other in loaded.items() if same[1] == place[1])
    folders = {path.parent.name for path in problems.glob("*/task.yml")}
    assert folders == {directory for directory, _ in expected.values()}
