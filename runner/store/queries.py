"""Every SQL statement the store sends, by name, parsed from `queries.sql`; the only door to that file.

In the file, a query starts with `-- name: <name>`, followed by at least one comment line with its purpose. Parameters
are `%(name)s`, so a literal percent sign is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

_HEADER = re.compile(
    r"^-- name: (?P<name>\w+)\n(?P<purpose>(?:-- .*\n)+)(?P<sql>(?:(?!-- name: ).*(?:\n|$))*)", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class Query:
    """A named statement."""

    name: str
    purpose: str
    #: Bytes, because psycopg takes text only if it is a literal.
    sql: bytes


def parse(text: str) -> Mapping[str, Query]:
    """The queries of a file, by name.

    Raises:
        ValueError: a name that occurs twice, or a header without purpose or statement.
    """
    queries: dict[str, Query] = {}
    for match in _HEADER.finditer(text):
        name, sql = match["name"], match["sql"].strip()
        if name in queries or not sql:
            raise ValueError(f"queries.sql: {name!r} is {'there twice' if name in queries else 'empty'}")
        purpose = " ".join(line.removeprefix("-- ") for line in match["purpose"].splitlines())
        queries[name] = Query(name=name, purpose=purpose, sql=sql.encode())
    if len(queries) != text.count("-- name: "):
        raise ValueError("queries.sql: a '-- name:' line is not followed by a line of purpose and a statement")
    return queries


ALL: Final = parse(resources.files("runner.store").joinpath("queries.sql").read_text(encoding="utf-8"))

PING: Final = ALL["ping"]
CLAIM: Final = ALL["claim"]
NOTIFY: Final = ALL["notify"]
RESERVE: Final = ALL["reserve"]
HEARTBEAT: Final = ALL["heartbeat"]
SAVE_PROGRESS: Final = ALL["save_progress"]
INSERT_ARTIFACT: Final = ALL["insert_artifact"]
COMPLETE: Final = ALL["complete"]
FAIL: Final = ALL["fail"]
RELEASE: Final = ALL["release"]
STOPPED: Final = ALL["stopped"]
RECLAIM: Final = ALL["reclaim"]
RECOVER: Final = ALL["recover"]
REGISTER_HOST: Final = ALL["register_host"]
UNREGISTER_HOST: Final = ALL["unregister_host"]
SYNC_GPU_TYPES: Final = ALL["sync_gpu_types"]
LISTEN_QUEUE: Final = ALL["listen_queue"]
LISTEN_HOSTS: Final = ALL["listen_hosts"]
UNLISTEN: Final = ALL["unlisten"]
SUBMIT: Final = ALL["submit"]
ENQUEUE: Final = ALL["enqueue"]
CANCEL: Final = ALL["cancel"]
STATUS: Final = ALL["status"]
QUEUE: Final = ALL["queue"]
JOBS: Final = ALL["jobs"]
RUNS: Final = ALL["runs"]
ARTIFACTS: Final = ALL["artifacts"]
ARTIFACT: Final = ALL["artifact"]
RANKING: Final = ALL["ranking"]
PERSONAL: Final = ALL["personal"]
HOSTS: Final = ALL["hosts"]
GPU_TYPES: Final = ALL["gpu_types"]
QUEUE_DEPTHS: Final = ALL["queue_depths"]
PAUSES: Final = ALL["pauses"]
SERVER_STATE: Final = ALL["server_state"]
RUNNING: Final = ALL["running"]
LATEST: Final = ALL["latest"]
OPEN_BATCHES: Final = ALL["open_batches"]
THROUGHPUT: Final = ALL["throughput"]
ENDED_JOBS: Final = ALL["ended_jobs"]
BOARDS: Final = ALL["boards"]
BOARD_NAME: Final = ALL["board_name"]
MAY_READ_TASKS: Final = ALL["may_read_tasks"]
OPEN_TASKS: Final = ALL["open_tasks"]
BOARD: Final = ALL["board"]
BOARD_TEMPLATES: Final = ALL["board_templates"]
LOCK_BOARD: Final = ALL["lock_board"]
INSERT_BOARD: Final = ALL["insert_board"]
UPDATE_BOARD: Final = ALL["update_board"]
DROP_BOARD_GPUS: Final = ALL["drop_board_gpus"]
INSERT_BOARD_GPUS: Final = ALL["insert_board_gpus"]
DROP_BOARD_TEMPLATES: Final = ALL["drop_board_templates"]
INSERT_BOARD_TEMPLATE: Final = ALL["insert_board_template"]
SAVE_BOARD_EXTRA: Final = ALL["save_board_extra"]
SET_DEMAND: Final = ALL["set_demand"]
SET_OPEN_JOBS: Final = ALL["set_open_jobs"]
CLOSE_BOARD: Final = ALL["close_board"]
LOCK_BOARD_SUBMISSIONS: Final = ALL["lock_board_submissions"]
DELETE_SUBMISSION_RUNS: Final = ALL["delete_submission_runs"]
DELETE_SUBMISSIONS: Final = ALL["delete_submissions"]
REMOVE_CODE: Final = ALL["remove_code"]
DELETE_BOARD: Final = ALL["delete_board"]
MATCHING: Final = ALL["matching"]
RERUN: Final = ALL["rerun"]
INVALIDATE: Final = ALL["invalidate"]
DRAIN: Final = ALL["drain"]
UNDRAIN: Final = ALL["undrain"]
PAUSE: Final = ALL["pause"]
RESUME: Final = ALL["resume"]
PAUSE_BOARD: Final = ALL["pause_board"]
RESUME_BOARD: Final = ALL["resume_board"]
FAILED: Final = ALL["failed"]
EVICT: Final = ALL["evict"]
REAP: Final = ALL["reap"]
EVENTS: Final = ALL["events"]
MOMENT: Final = ALL["moment"]
SERVER_FACTS: Final = ALL["server_facts"]
SESSION_SETTINGS: Final = ALL["session_settings"]
HAS_VERSION: Final = ALL["has_version"]
APPLIED_VERSION: Final = ALL["applied_version"]
STORE_VERSION: Final = ALL["store_version"]
LOGIN_FACTS: Final = ALL["login_facts"]
LISTEN_CHECK: Final = ALL["listen_check"]
NOTIFY_CHECK: Final = ALL["notify_check"]
MIGRATION_LOCK: Final = ALL["migration_lock"]
MIGRATION_SETTINGS: Final = ALL["migration_settings"]
LOCK_VIEWS: Final = ALL["lock_views"]
LOCK_TABLES: Final = ALL["lock_tables"]
INDEX_SETTINGS: Final = ALL["index_settings"]
TRY_INDEX_LOCK: Final = ALL["try_index_lock"]
BUILT_INDEXES: Final = ALL["built_indexes"]
KEEP_SCORES: Final = ALL["keep_scores"]
APPLIED_OBJECTS: Final = ALL["applied_objects"]
APPLIED_FILES: Final = ALL["applied_files"]
STORE_APPLIED: Final = ALL["store_applied"]
CREATE_RUNNER_SCHEMA: Final = ALL["create_runner_schema"]
SERVER_ENCODING: Final = ALL["server_encoding"]
LEADERBOARD_COLUMNS: Final = ALL["leaderboard_columns"]
LEADERBOARD_KEYS: Final = ALL["leaderboard_keys"]
DATASET_MOMENT: Final = ALL["dataset_moment"]
DATASET_BOARDS: Final = ALL["dataset_boards"]
DATASET_PEOPLE: Final = ALL["dataset_people"]
DATASET_SUBMISSIONS: Final = ALL["dataset_submissions"]
DATASET_RUNS: Final = ALL["dataset_runs"]
DATASET_FLAGS: Final = ALL["dataset_flags"]
DATASET_FIGURES: Final = ALL["dataset_figures"]
DATASET_HOSTS: Final = ALL["dataset_hosts"]
DATASET_TOUCHED: Final = ALL["dataset_touched"]
DATASET_USERS: Final = ALL["dataset_users"]
DATASET_CODES: Final = ALL["dataset_codes"]
DATASET_VERSIONS: Final = ALL["dataset_versions"]
DATASET_WATERMARK: Final = ALL["dataset_watermark"]
DATASET_SNAPSHOT: Final = ALL["dataset_snapshot"]
DATASET_CODE: Final = ALL["dataset_code"]
DATASET_FINDINGS: Final = ALL["dataset_findings"]
DATASET_KEYS: Final = ALL["dataset_keys"]
APPROVE_LOGIN: Final = ALL["approve_login"]
SET_TOKEN: Final = ALL["set_token"]
REVOKE_LOGIN: Final = ALL["revoke_login"]
USERS: Final = ALL["users"]
