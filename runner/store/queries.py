"""Every SQL statement the store sends: those of `queries.sql`, and calls of the functions of `schema/functions`.

In the file, a query starts with `-- name: <name>`, followed by at least one comment line with its purpose. Parameters
are `%(name)s`, so a literal percent sign is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

_HEADER = re.compile(r"^-- name: (?P<name>\w+)\n(?:-- .*\n)+(?P<sql>(?:(?!-- name: ).*(?:\n|$))*)", re.MULTILINE)
_SIGNATURE: Final = re.compile(r"^(\w+)\((.*)\)( AS \w+)?$")
_ARGUMENT: Final = re.compile(r"(\w+) (.*)")


@dataclass(frozen=True, kw_only=True)
class Query:
    """A named statement."""

    name: str
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
        queries[name] = Query(name=name, sql=sql.encode())
    if len(queries) != text.count("-- name: "):
        raise ValueError("queries.sql: a '-- name:' line is not followed by a line of purpose and a statement")
    return queries


def call(signature: str) -> Query:
    """A call of a function of ours; `f(a text, b integer) AS c` sends parameters a and b, and names its value c."""
    name, arguments, result = _SIGNATURE.findall(signature)[0]
    values = ", ".join(_ARGUMENT.sub(r"%(\1)s::\2", argument) for argument in arguments.split(", "))
    sql = f"SELECT * FROM runner.{name}({values}){result}"  # noqa: S608 - of constants of this module
    return Query(name=name, sql=sql.encode())


ALL: Final = parse(resources.files("runner.store").joinpath("queries.sql").read_text(encoding="utf-8"))

PING: Final = ALL["ping"]
CLAIM: Final = ALL["claim"]
TAKE_CHECK: Final = ALL["take_check"]
NOTIFY: Final = ALL["notify"]
HEARTBEAT: Final = call("heartbeat(host text, lease_s float8, ids bigint[], attempts integer[], instance text)")
SAVE_PROGRESS: Final = call("show_progress(id bigint, attempt integer, progress jsonb) AS held")
INSERT_ARTIFACT: Final = call(
    "keep_file(job_id bigint, attempt integer, name text, media_type text, data bytea) AS kept"
)
COMPLETE: Final = call("complete(results jsonb)")
COMPLETE_WAITING: Final = call("complete_waiting(host text, instance text, result jsonb)")
FAIL: Final = call("fail(id bigint, attempt integer, submission_id integer, slot text, error text, report jsonb)")
RELEASE: Final = call("release(id bigint, attempt integer, submission_id integer, reason text)")
STOPPED: Final = call("stopped(id bigint, attempt integer, submission_id integer)")
RECLAIM: Final = ALL["reclaim"]
RECOVER: Final = call("recover(host text, ids bigint[], attempts integer[], died boolean, instance text)")
REGISTER_HOST: Final = call("register(name text, version text, slots jsonb, instance text, gpu_types text[], key text)")
HOST_KEYS: Final = ALL["host_keys"]
SIGNED_RESULT: Final = ALL["signed_result"]
UNREGISTER_HOST: Final = call("unregister(name text, instance text)")
SYNC_GPU_TYPES: Final = call("publish_gpu_types(types jsonb) AS refused")
LISTEN_QUEUE: Final = ALL["listen_queue"]
LISTEN_HOSTS: Final = ALL["listen_hosts"]
SUBMIT: Final = call(
    "submit(leaderboard text, user_id text, file_name text, code bytea, mode text, gpu_types text[], user_name "
    "text, priority integer, idempotency_key text, start_at timestamptz, expires_at timestamptz, "
    "options jsonb) AS submission_id"
)
ENQUEUE: Final = call(
    "enqueue(submission_id bigint, mode text, gpu_types text[], priority integer, options jsonb) AS added"
)
CANCEL: Final = call("cancel(submission_id bigint, user_id text) AS asked")
STATUS: Final = ALL["status"]
QUEUE: Final = ALL["queue"]
JOBS: Final = ALL["jobs"]
RUNS: Final = ALL["runs"]
ARTIFACTS: Final = ALL["artifacts"]
ARTIFACT: Final = ALL["artifact"]
RANKING: Final = ALL["ranking"]
HOSTS: Final = ALL["hosts"]
GPU_TYPES: Final = ALL["gpu_types"]
QUEUE_DEPTHS: Final = ALL["queue_depths"]
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
SET_DEMAND: Final = call("set_demand(name text, timing text, tolerance float8) AS changed")
SET_OPEN_JOBS: Final = call("set_open_jobs(name text, max_open_jobs integer)")
SET_OPEN_CODE: Final = call("set_open_code(name text, open_code boolean)")
DELETE_BOARD: Final = call("delete_board(name text, force boolean) AS left_over")
MATCHING: Final = ALL["matching"]
RERUN: Final = call(
    "rerun(submission_id bigint, leaderboard text, host text, since timestamptz, until timestamptz, gpu_types "
    "text[], reason text, priority integer, verdicts text[], cause text) AS jobs"
)
VALIDATE: Final = call("validate(leaderboard text, gpu_type text, all_users boolean, only_missing boolean)")
CANCEL_VALIDATIONS: Final = call("cancel_validations(sweep_id bigint) AS asked")
VALIDATIONS: Final = call("validations(leaderboard text, submission_id bigint, sweep_id bigint)")
VALIDATION_PROGRESS: Final = call("validation_progress(sweep_id bigint)")
ORDER_FINAL: Final = call("final(leaderboard text, gpu_type text, top integer, rounds integer, open boolean)")
CANCEL_FINAL: Final = call("cancel_final(leaderboard text, gpu_type text) AS asked")
FINAL_PROGRESS: Final = ALL["final_progress"]
FINAL_RANKING: Final = ALL["final_ranking"]
FINAL_PAIRS: Final = ALL["final_pairs"]
INVALIDATE: Final = call(
    "invalidate(submission_id bigint, leaderboard text, host text, since timestamptz, until timestamptz, "
    "gpu_types text[], reason text, verdicts text[], cause text) AS jobs"
)
DRAIN: Final = call("drain(host text, reason text) AS changed")
UNDRAIN: Final = call("undrain(host text) AS changed")
PAUSE: Final = call("pause(gpu_type text, reason text) AS changed")
RESUME: Final = call("resume(gpu_type text) AS changed")
PAUSE_BOARD: Final = call("pause_board(leaderboard text, reason text) AS changed")
RESUME_BOARD: Final = call("resume_board(leaderboard text) AS changed")
FAILED: Final = ALL["failed"]
REAP: Final = ALL["reap"]
MOMENT: Final = ALL["moment"]
SAVE_RETRY: Final = ALL["save_retry"]
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
KEEP_SCORES: Final = call("keep_scores(limit integer) AS more")
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
DATASET_FINALS: Final = ALL["dataset_finals"]
DATASET_CODES: Final = ALL["dataset_codes"]
DATASET_CODE: Final = ALL["dataset_code"]
DATASET_FINDINGS: Final = ALL["dataset_findings"]
DATASET_KEYS: Final = ALL["dataset_keys"]
DATASET_RECEIPTS: Final = ALL["dataset_receipts"]
APPROVE_LOGIN: Final = call("approve_login(code text, user_id text, user_name text, existing boolean)")
SET_TOKEN: Final = call("set_token(user_id text, user_name text, digest text)")
REVOKE_LOGIN: Final = call("revoke_login(user_id text) AS revoked")
USERS: Final = ALL["users"]
ADD_WEBHOOK: Final = call("add_webhook(leaderboard text, name text, url text, format text, events text[], secret text)")
REMOVE_WEBHOOK: Final = call("remove_webhook(name text)")
TEST_WEBHOOK: Final = call("test_webhook(name text) AS event_id")
WEBHOOKS: Final = ALL["webhooks"]
WEBHOOK_WAITS: Final = ALL["webhook_waits"]
