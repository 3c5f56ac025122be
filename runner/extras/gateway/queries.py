"""What the gateway and its commands send beside `SHARED`."""

from __future__ import annotations

from typing import Final

from runner.store.queries import statements

#: The largest number that PostgreSQL's integer holds.
MOST: Final = 2**31 - 1
#: By name.
QUERIES: Final = statements(
    __file__,
    "admit_login(code text, user_id text, user_name text) AS user_id",
    "approve_login(code text, user_id text, user_name text, existing boolean)",
    "attach_login(code text, user_id text) AS user_id",
    "begin_login(code text, digest text, provider text, origin text) AS begun",
    "cancel(submission_id bigint, user_id text) AS asked",
    "delete_submission(submission_id bigint, user_id text) AS deleted",
    "join_board(code text, user_id text) AS leaderboards",
    "login_of(cli text[], web text[], user_id text)",
    "revoke_login(user_id text) AS revoked",
    "set_open_code(leaderboard text, open_code boolean)",
    "set_token(user_id text, user_name text, digest text)",
    "validations(leaderboard text, submission_id bigint, sweep_id bigint)",
    "web_login(provider text, subject text, user_name text) AS user_id",
)
