"""`kernelbook`: from evaluations of generated kernels to training sets, one subcommand per step.

The steps lie in `runner.extras.trainers.kernelbook`, which needs the extra `kernelbook`; it is imported when a
command runs.
"""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runner.base.errors import ConfigError
from runner.cli.app import ExitCode, app, example, login_name, note, out_json, session
from runner.extras.stages import stages
from runner.extras.trainers.kernelbook import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.extras.trainers.kernelbook.enrich import Step
    from runner.extras.trainers.kernelbook.report import StepReport
    from runner.extras.trainers.kernelbook.rows import Source
    from runner.extras.trainers.kernelbook.settings import Settings

kernelbook_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make training sets from evaluations of generated kernels (the KernelBook pipeline).",
    epilog="\b\nExit codes: 0 complete, 1 rows failed (a file beside the output has them), 2 usage, 3 service down.\n"
    "Variables, also from .env: PRIME_API_KEY, PRIME_TEAM_ID, PRIME_BASE_URL, MODEL, BATCH_SIZE, MAX_RETRIES,\n"
    "REWARD_THRESHOLD, MODEL_NAME, DATASET_PATH, HF_TOKEN, FILTERED_DATASET_PATH, UNIQUE_DATASET_PATH,\n"
    "SYNTHETIC_DATASET_PATH, TEST_MODE (true: 5 rows). Options win over variables.",
)
app.add_typer(kernelbook_app, name="kernelbook")


class Name(StrEnum):
    """The data sets that are uploaded."""

    ALL = "all"
    FILTERED = "filtered"
    UNIQUE = "unique"
    SYNTHETIC = "synthetic"


_Input = Annotated[
    str | None,
    typer.Option("--input", metavar="DATA", help="A .jsonl or .parquet file, a folder, or OWNER/NAME[@REV]."),
]
_Output = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", dir_okay=False, help="The JSONL file to write.")
]
_Model = Annotated[str | None, typer.Option("--model", metavar="NAME", help="The model to ask, instead of MODEL.")]
_Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Take only the first N rows.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask, write and send nothing; say what would be done.")]
_Again = Annotated[bool, typer.Option("--again", help="Ask again for rows whose answers could not be used.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@kernelbook_app.command(epilog=example("kernel-runner kernelbook synthesize --input outputs/synthetic_prompts.jsonl"))
def synthesize(
    *,
    rollout: Annotated[
        int, typer.Option("--rollout", min=0, metavar="K", help="Number of this pass; each asks for other completions.")
    ] = 0,
    input_: _Input = None,
    output: _Output = None,
    model: _Model = None,
    limit: _Limit = None,
    dry_run: _DryRun = False,
    again: _Again = False,
    as_json: _AsJson = False,
) -> None:
    """Step 0, first half: have a model write kernels for prompts.

    Reads the file of step 2, or other prompts. Writes outputs/completions.jsonl: the input's columns, completion and
    generation_ms. Prompts that are lists of messages are sent as they are.
    """
    settings = _asking_settings()
    from runner.extras.trainers.kernelbook import prompts as before
    from runner.extras.trainers.kernelbook import synthesize as step

    _ask(
        step.step(rollout),
        settings,
        source=_source(settings, input_ or before.OUTPUT, limit),
        output=output or Path(step.OUTPUT),
        model=(model, before.MODEL),
        dry_run=dry_run,
        again=again,
        as_json=as_json,
    )


@kernelbook_app.command(epilog=example("kernel-runner kernelbook score --gpu H100 --input outputs/completions.jsonl"))
def score(
    context: typer.Context,
    *,
    gpu: Annotated[str, typer.Option("--gpu", metavar="T", help="GPU type.")],
    input_: _Input = None,
    output: _Output = None,
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="NAME", help="Name of the batch.", show_default="a new one")
    ] = None,
    timed_calls: Annotated[int, typer.Option("--timed-calls", min=1, metavar="N", help="Timed calls, to 1000.")] = 20,
    again: Annotated[
        int,
        typer.Option("--again", min=0, metavar="N", help="Evaluate what ended as a fault of ours N times more."),
    ] = 0,
    limit: _Limit = None,
    dry_run: _DryRun = False,
    as_json: _AsJson = False,
) -> None:
    """Step 0, second half: evaluate completions through the queue.

    Reads outputs/completions.jsonl; needs a database and a daemon. Writes outputs/evals.jsonl, in the layout that
    `filter` reads, with the speed-up's interval, verdict and device beside the reward kernelbook@1, which is 0 for a
    completion without code. Rows without a reward for which the candidate is not to blame go into
    outputs/evals.failures.jsonl.
    """
    require("dotenv")
    from runner.extras.trainers.kernelbook import score as step
    from runner.extras.trainers.kernelbook import synthesize as before
    from runner.extras.trainers.kernelbook.settings import Settings

    settings = Settings.load()
    source = _source(settings, input_ or before.OUTPUT, limit)
    if dry_run:
        _print_reports(step.planned(source), as_json=as_json)
        return
    from runner.extras.trainers.client import Client

    queue = Client(
        session(context).config.require_database_url(),
        gpu_type=gpu,
        batch=batch,
        user_id=login_name("set LOGNAME"),
        settings={"timed_calls": timed_calls},
    )
    with queue as client, stages() as progress:
        report = step.run(
            source,
            client,
            device=gpu,
            output=output or Path(step.OUTPUT),
            again=again,
            progress=lambda done: progress("results", done, 0),
        )
    _print_reports(report, as_json=as_json)


@kernelbook_app.command(
    name="filter",
    epilog=example(
        "kernel-runner kernelbook filter", "kernel-runner kernelbook filter --input evals.jsonl --limit 100"
    ),
)
def filter_(
    *,
    threshold: Annotated[
        float | None, typer.Option("--threshold", metavar="R", help="Keep rewards above R.  [default: 0.85]")
    ] = None,
    input_: _Input = None,
    output: _Output = None,
    model: _Model = None,
    limit: _Limit = None,
    dry_run: _DryRun = False,
    again: _Again = False,
    as_json: _AsJson = False,
) -> None:
    """Step 1: keep rows with a high reward, and have a model rate how difficult their tasks are.

    Reads siro1/kernelbook-glm4_7-evals. Writes outputs/filtered_dataset.jsonl: all columns, and difficulty and
    evaluation_raw. Every answer is kept at once in outputs/journal.sqlite; a second run asks only what is missing.
    """
    settings = _asking_settings()
    from runner.extras.trainers.kernelbook import difficulty

    if threshold is None:
        threshold = settings.number("REWARD_THRESHOLD", difficulty.THRESHOLD)
    elif not math.isfinite(threshold):
        raise ConfigError(f"--threshold is {threshold}, expected a number")
    _ask(
        difficulty.step(threshold),
        settings,
        source=_source(settings, input_ or difficulty.INPUT, limit),
        output=output or Path(difficulty.OUTPUT),
        model=(model, difficulty.MODEL),
        dry_run=dry_run,
        again=again,
        as_json=as_json,
    )


@kernelbook_app.command(epilog=example("kernel-runner kernelbook prompts --input GPUMODE/KernelBook@main"))
def prompts(
    *,
    input_: _Input = None,
    output: _Output = None,
    model: _Model = None,
    limit: _Limit = None,
    dry_run: _DryRun = False,
    again: _Again = False,
    as_json: _AsJson = False,
) -> None:
    """Step 2: have a model write a specification of each module, without code and without hints at a solution.

    Reads GPUMODE/KernelBook. Writes outputs/synthetic_prompts.jsonl: prompt, module_name, python_code. A specification
    that holds code or names Triton is asked for again, and kept aside if it still does.
    """
    settings = _asking_settings()
    from runner.extras.trainers.kernelbook import prompts as step

    _ask(
        step.step(),
        settings,
        source=_source(settings, input_ or step.INPUT, limit),
        output=output or Path(step.OUTPUT),
        model=(model, step.MODEL),
        dry_run=dry_run,
        again=again,
        as_json=as_json,
    )


@kernelbook_app.command(epilog=example("kernel-runner kernelbook best"))
def best(
    *,
    input_: Annotated[Path | None, typer.Option("--input", metavar="FILE", help="A JSONL file.")] = None,
    output: _Output = None,
    by_code: Annotated[
        bool, typer.Option("--by-code", help="Modules are the same if their code is, whatever they are called.")
    ] = False,
    limit: _Limit = None,
    dry_run: _DryRun = False,
    as_json: _AsJson = False,
) -> None:
    """Step 3: of all rows of a module, keep the one with the highest reward; the first of equal ones.

    Reads the file of step 1. Writes outputs/filtered_dataset-filtered.jsonl, by falling reward.
    """
    require()
    from runner.extras.trainers.kernelbook import best as step

    source, target = Path(input_ or step.INPUT), Path(output or step.OUTPUT)
    report = step.run(source, target, by_code=by_code, limit=limit, dry_run=dry_run)
    _print_reports(report, as_json=as_json)


@kernelbook_app.command(epilog=example("kernel-runner kernelbook lengths --input outputs/filtered_dataset.jsonl"))
def lengths(
    *,
    input_: _Input = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", metavar="NAME", help="At the hub, or a folder.")
    ] = None,
    limit: _Limit = None,
    as_json: _AsJson = False,
) -> None:
    """Step 4: count the tokens of all rows, and recommend a sequence length for training.

    Tokens are those of prompt and completion in the tokenizer's chat template, reasoning included.
    """
    require("transformers", "jinja2", "dotenv")
    from runner.extras.trainers.kernelbook import lengths as step
    from runner.extras.trainers.kernelbook.settings import Settings

    settings = Settings.load()
    name = input_ or settings.get("DATASET_PATH")
    if name is None:
        raise ConfigError("no data set: give --input, or set DATASET_PATH in the environment or in .env")
    source = _source(settings, name, limit)
    with stages() as progress:
        report = step.run(
            source,
            model=tokenizer or settings.get("MODEL_NAME") or step.MODEL_NAME,
            token=settings.hub_token,
            progress=lambda done: progress("rows counted", done, 0),
        )
    if not as_json:
        _print_lengths(report.facts)
    _print_reports(report, as_json=as_json)


@kernelbook_app.command(
    epilog=example("kernel-runner kernelbook upload all", "kernel-runner kernelbook upload unique --to sets")
)
def upload(
    *,
    name: Annotated[Name, typer.Argument(metavar="SET", help="all, filtered, unique or synthetic.")],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Write to a folder of the same layout, not to the hub.")
    ] = None,
    repository: Annotated[
        str | None, typer.Option("--repository", metavar="OWNER/NAME", help="At the hub; for one SET.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Make new repositories private.")] = False,
    limit: _Limit = None,
    dry_run: _DryRun = False,
    as_json: _AsJson = False,
) -> None:
    """Step 5: put data sets with their splits and a card to the hub or into a folder.

    A tenth is for validation, seed 42, with rows of the same code on one side; the synthetic set is not split. Only the
    path that a set needs must be given: FILTERED_DATASET_PATH, UNIQUE_DATASET_PATH or SYNTHETIC_DATASET_PATH.
    """
    require("dotenv", *(["huggingface_hub"] if to is None else []))
    from runner.extras.trainers.kernelbook import upload as step
    from runner.extras.trainers.kernelbook.settings import Settings

    if repository is not None and name is Name.ALL:
        raise ConfigError("--repository names one data set; give filtered, unique or synthetic instead of all")
    settings = Settings.load()
    chosen = [target for target in step.TARGETS if name is Name.ALL or target.name == name.value]
    paths = {target.name: settings.get(target.variable) for target in chosen}
    reports = [
        step.run(
            target,
            None if (path := paths[target.name]) is None else Path(path),
            to=to,
            repository=repository,
            token=settings.hub_token,
            limit=limit,
            dry_run=dry_run,
            private=private,
        )
        for target in chosen
    ]
    _print_reports(*reports, as_json=as_json)


@kernelbook_app.command(epilog=example("kernel-runner kernelbook scripts my-pipeline"))
def scripts(
    *, directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder; it gets a folder `scripts`.")]
) -> None:
    """Write scripts with the names of the published pipeline.

    They call these commands, with the same variables and options: `python scripts/filter_unique_best.py`.
    """
    from runner.extras.trainers.kernelbook.scripts import write

    for path in write(directory):
        typer.echo(path)


def _asking_settings() -> Settings:
    """The variables, where all is installed that a step needs to ask a model."""
    require("httpx2", "dotenv")
    from runner.extras.trainers.kernelbook.settings import Settings

    return Settings.load()


def _source(settings: Settings, name: str, limit: int | None) -> Source:
    """A data set, or as much of it as option and TEST_MODE leave."""
    from runner.extras.trainers.kernelbook.rows import Source

    limits = [rows for rows in (limit, settings.test_limit) if rows is not None]
    return Source(name, token=settings.hub_token, limit=min(limits, default=None))


def _ask(
    step: Step,
    settings: Settings,
    *,
    source: Source,
    output: Path,
    model: tuple[str | None, str],
    dry_run: bool,
    again: bool,
    as_json: bool,
) -> None:
    """Run a step that asks a model. `model`: that of the option, and the usual one."""
    from runner.extras.trainers.kernelbook import enrich

    with stages() as progress:
        report = enrich.run(
            step,
            source,
            endpoint=settings.endpoint(model=model[0], default_model=model[1]),
            output=output,
            dry_run=dry_run,
            again=again,
            progress=lambda done: progress("rows", done, 0),
        )
    _print_reports(report, as_json=as_json)


def _print_lengths(figures: Mapping[str, Any]) -> None:
    most = max(figures["buckets"].values())
    for end, count in figures["buckets"].items():
        typer.echo(f"{end if end == 'more' else f'to {end}':>10} {count:>8} {'#' * round(40 * count / most)}")
    for name, key in (("percentiles", "percentiles"), ("rows longer than", "longer_than")):
        typer.echo(f"{name}: {', '.join(f'{limit}: {value}' for limit, value in figures[key].items())}")
    for coverage, length in figures["recommended"].items():
        shown = length if length is not None else "longer than all usual ones (65536): nothing fits"
        typer.echo(f"sequence length for {coverage} %: {shown}")


def _print_reports(*reports: StepReport, as_json: bool) -> None:
    if as_json:
        out_json([report.to_json() for report in reports])
    else:
        for report in reports:
            note("\n".join(report.lines()))
            for file in report.files:
                typer.echo(file)
    if not all(report.complete for report in reports):
        raise typer.Exit(ExitCode.NOT_ACCEPTED)
