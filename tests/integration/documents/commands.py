"""The shell commands that README.md, CONTRIBUTING.md and docs/ show, and which of them are run where.

Shown are lines of `sh` blocks, and lines after a `$` in indented blocks. A comment behind a command is not part of it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
_BLOCK: Final = re.compile(r"^ *```(?:sh|bash|console|shell)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_PROMPT: Final = re.compile(r"^    \$ (.+)$", re.MULTILINE)

#: What an operator types on an installed host: its whole life, in a container with a booted systemd.
_INSTALLED: Final = (
    "sudo apt-get install ./dist/kernel-runner_*.deb",
    "sudo kernel-runner install --database-url-file url --eval-python /opt/torch/bin/python --migrate",
    "sudo kernel-runner leaderboard create /opt/kernel-runner/tasks/problems/vectoradd --name vectoradd --gpu CPU",
    (
        "sudo kernel-runner submit /opt/kernel-runner/tasks/problems/vectoradd/solutions/correct/torch_add.py"
        " --leaderboard vectoradd --gpu CPU --mode test --wait"
    ),
    'sudo install -m 600 /dev/stdin /etc/kernel-runner/credentials/database_url <<< "$NEW_URL"',
    "sudo systemctl restart kernel-runner",
    "sudo dist/kernel-runner upgrade",
)
#: What an operator of PostgreSQL types, in the order of the page.
_STANDBY: Final = (
    (
        'pg_basebackup --dbname="$PRIMARY application_name=standby" --pgdata="$STANDBY_DATA" --write-recovery-conf'
        " --checkpoint=fast"
    ),
    'pg_ctl --pgdata="$STANDBY_DATA" start',
    (
        'psql "$PRIMARY" --command="ALTER SYSTEM SET synchronous_standby_names = \'FIRST 1 (standby)\'"'
        ' --command="SELECT pg_reload_conf()"'
    ),
    'psql "$PRIMARY" --command="SELECT application_name, state, sync_state, replay_lag FROM pg_stat_replication"',
    'pg_ctl --pgdata="$STANDBY_DATA" promote',
    'psql "$STANDBY" --command="SELECT pg_is_in_recovery(), pg_last_xact_replay_timestamp()"',
    'pg_dumpall --dbname="$PRIMARY" --roles-only --file=roles.sql',
    'pg_dump --dbname="$PRIMARY" --format=custom --file=kernelbot.dump',
    'psql "$NEW" --file=roles.sql',
    'pg_restore --dbname="$NEW" --exit-on-error kernelbot.dump',
)
_KERNELBOOK: Final = (
    "kernel-runner kernelbook best",
    "kernel-runner kernelbook filter",
    "kernel-runner kernelbook filter --input evals.jsonl --limit 100",
    "kernel-runner kernelbook lengths --input outputs/filtered_dataset.jsonl",
    "kernel-runner kernelbook prompts --input GPUMODE/KernelBook@main",
    "kernel-runner kernelbook scripts my-pipeline",
    "kernel-runner kernelbook synthesize --input outputs/synthetic_prompts.jsonl",
    "kernel-runner kernelbook upload all",
    "kernel-runner kernelbook upload unique --to sets",
)
#: Shown commands that `test_commands.py` does not run, and why.
ELSEWHERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(_INSTALLED, "tests/integration/systemd/test_service.py"),
    **dict.fromkeys(_KERNELBOOK, "tests/integration/extras/trainers/kernelbook, with files and endpoints of their own"),
    "kernel-runner kernelbook score --gpu H100 --input outputs/completions.jsonl": (
        "tests/integration/daemon/test_kernelbook.py, on a CPU"
    ),
    "kernel-runner host evict 4711 --reason 'the clock of gpu-07 was wrong'": (
        "tests/integration/cli/test_again.py, on a job that runs"
    ),
    "kernel-runner submit tasks/problems/vectoradd/solutions/faults/cheat.py --leaderboard vectoradd --user mallory"
    " --wait": ("`make demo` submits the same file; tests/unit/problems/test_problems.py shows what it does"),
    "make demo": "runs everything, this test too; what it does step by step is tests/unit/development/test_stack.py",
    "make test": "is running now",
    **dict.fromkeys(
        ("make setup", "make test-unit", "make lint", "make help"), "are what a run of the tests is made with"
    ),
    **dict.fromkeys(
        ("make down", "make clean"), "would stop what runs; tests/unit/development/test_stack.py stops a stack"
    ),
    "make up": "a second database, engine and daemon; its parts are tests/unit/development/test_stack.py",
    'eval "$(make -s env)"': "names the stack of `make up`, whose place a test's own takes here",
    'psql "$DATABASE_URL"': "opens a session for a person; the statements are tests/integration/store/test_queries.py",
    "python -m tests.gpu FOLDER": "needs an accelerator",
    "kernel-runner check": "tests/integration/cli/test_operations.py, with what is missing and what is not",
    "kernel-runner migrate": "tests/integration/cli/test_operations.py, on an empty database",
    "kernel-runner migrate --print-roles | psql postgresql://admin@db.example/kernelbot": (
        "tests/integration/systemd/test_service.py makes the roles of it"
    ),
    "kernel-runner serve": "tests/plugins/live.py starts it",
    "sudo kernel-runner uninstall": "tests/integration/systemd/test_service.py uninstalls, with --purge",
    "kernel-runner migrate --roles": "tests/plugins/postgres.py, for every test",
    "kernel-runner gateway": "tests/integration/cli/test_users.py starts it",
    "kernel-runner traces --endpoint http://localhost:4318": "tests/integration/cli/test_traces.py, with a collector",
    **dict.fromkeys(
        (
            "kernel-runner batch run candidates.jsonl --gpu H100 --out results.jsonl",
            "kernel-runner batch run KernelBench --candidates KernelBench/runs/mine --gpu H100 --out results.jsonl",
            "kernel-runner batch rewards results.jsonl --reward drkernel@1",
        ),
        "tests/integration/cli/test_batch.py, with a daemon that evaluates modules",
    ),
    "kernel-runner batch kernelgym --gpu H100 --listen 127.0.0.1:10907": "tests/integration/daemon/test_kernelgym.py",
    **dict.fromkeys(
        (
            "kernel-runner user token ada",
            "kernel-runner user token alice",
            "kernel-runner user approve 1b9d6bcd ada --name 'Ada L.'",
            "kernel-runner user list",
            "kernel-runner user revoke ada",
            'kernel-runner user token ada --name "Ada L."',
            'kernel-runner user approve 1b9d6bcd ada --name "Ada L."',
        ),
        "tests/integration/cli/test_users.py",
    ),
    **dict.fromkeys(
        (
            ('sudo install -m 600 /dev/stdin /etc/kernel-runner/credentials/gateway_database_url <<< "$GATEWAY_URL"'),
            (
                "openssl rand -hex 32 | sudo install -m 600 /dev/stdin"
                " /etc/kernel-runner/credentials/gateway_admin_token"
            ),
        ),
        "writes files of root's; tests/unit/systemd/test_units.py has their places",
    ),
    "kernel-runner artifact 3 --output trace.json.gz": "tests/acceptance/test_lifecycle.py, where a run leaves a file",
    "kernel-runner cancel 17 --user alice": "tests/integration/cli/test_submissions.py",
    "kernel-runner leaderboard delete vectoradd --force": "tests/integration/cli/test_leaderboards.py",
    "kernel-runner rerun 17": "tests/integration/cli/test_again.py",
    "kernel-runner eval tasks/problems/vectoradd mine.py --mode benchmark": (
        "tests/integration/cli/test_operations.py evaluates in a container"
    ),
    "docker build -f sandbox/image/Dockerfile.cuda -t kernel-runner/cuda sandbox/image": (
        "downloads gigabytes; tests/integration/cli/test_images.py builds cpu"
    ),
    "kernel-runner image check kernel-runner/cuda --gpu H100": (
        "needs that image; tests/integration/cli/test_image_check.py looks into a root file system that is there"
    ),
    "kernel-runner image check --gpu CPU": "tests/integration/cli/test_image_check.py",
    **dict.fromkeys(_STANDBY, "tests/integration/documents/test_standby.py, on two servers"),
    "kernel-runner task check their_task --emulate-cuda": "tests/acceptance/test_emulation.py",
    "kernel-runner eval their_task submission.py --emulate-cuda --mode benchmark": "the same",
    "kernel-runner invalidate 17 --reason 'reads the clock of the judge'": "tests/integration/cli/test_again.py",
    "kernel-runner host drain node2 --reason 'new fan' --wait && ssh node2 sudo reboot": "would reboot a host",
    "kernel-runner gpu detect --write RTX5090 --device 1": ("tests/unit/cli/test_gpu_devices.py, with that device"),
    "kernel-runner gpu validate RTX5090.toml": "tests/unit/cli/test_gpu.py",
    "kernel-runner task check tasks/problems/vectoradd": "tests/acceptance/test_tasks.py evaluates the same",
    "kernel-runner task check tasks/problems/row_max": "tests/integration/cli/test_tasks.py",
    "kernel-runner eval tasks/problems/row_max tasks/problems/row_max/solutions/correct/sorted.py --mode leaderboard": (
        "tests/integration/cli/test_tasks.py"
    ),
    "curl --unix-socket /var/lib/kernel-runner/http.sock http://localhost/readyz": (
        "tests/unit/daemon/monitoring/test_http_endpoint.py asks a socket"
    ),
    "kernel-runner gpu test CPU": "measures a slot for minutes",
    "sudo kernel-runner gpu clocks --lock": "tests/unit/cli/test_gpu_clocks.py",
    **dict.fromkeys(
        (
            (
                "kernel-runner data export nvfp4 --leaderboard nvfp4_gemv --leaderboard nvfp4_gemm --name nvidia_nvfp4"
                " --licence cc-by-4.0"
            ),
            "kernel-runner data export /srv/backup/data --private",
            "kernel-runner data verify nvfp4",
            "kernel-runner data check --leaderboard nvfp4_gemv",
        ),
        "tests/integration/cli/test_data.py, on leaderboards that have ended",
    ),
    **dict.fromkeys(
        (
            "kernel-runner data top export --problem vectoradd -n 3",
            "kernel-runner data progression export --user ada --problem vectoradd",
            "kernel-runner data summary export --by-runner",
            "kernel-runner data user export ada --json",
            "kernel-runner data plot export --problem vectoradd --output race.svg",
            "kernel-runner data plot export --kind progression --user ada --user grace_h --output users.png",
            "kernel-runner data plot export --problem vectoradd --html report.html",
            "kernel-runner data plot export --problem vectoradd -n 7 --output race.png",
            (
                "kernel-runner data plot export --kind progression --user ada --user gau.nernst --user grace_h --output"
                " progression.png"
            ),
            "kernel-runner data publish export gpu-group/kernels-2030 --dry-run",
            "kernel-runner data publish export gpu-group/kernels-2030",
        ),
        "tests/unit/extras/data/test_documents.py",
    ),
}
#: Words with which a command begins that needs a booted systemd or its journal.
SYSTEMD: Final = ("systemctl", "journalctl", "systemd-analyze")


@dataclass(frozen=True, order=True)
class Shown:
    """A command and where it is shown."""

    page: str
    command: str


def shown() -> Iterator[Shown]:
    """Every command, page by page in the order of the text."""
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        found = [(match.start(), match[1]) for match in _BLOCK.finditer(text)]
        found += [(match.start(), match[1]) for match in _PROMPT.finditer(text)]
        for _, block in sorted(found):
            for line in block.replace("\\\n", " ").splitlines():
                command = re.sub(r"\s+# .*$", "", line).strip()
                if command and not command.startswith("#"):
                    yield Shown(path.relative_to(ROOT).as_posix(), " ".join(command.split()))


def words(command: str) -> tuple[list[str], Path | None]:
    """Arguments of a plain command, and the file that its output goes to.

    Raises:
        ValueError: it is more than that.
    """
    parts = shlex.split(command)
    target = None
    if len(parts) > 2 and parts[-2] == ">":
        target, parts = Path(parts[-1]), parts[:-2]
    if {"|", "&&", "||", ";", ">", "<", "&"} & set(parts) or "$(" in command:
        raise ValueError(f"{command!r} is more than one plain command: say in ELSEWHERE where it is run")
    return parts, target
