-- Where the Discord frontend shows a submission; written in the transaction that stores it.
CREATE TABLE runner.discord_submission (
    submission_id integer PRIMARY KEY REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    interaction_id bigint NOT NULL,
    channel_id bigint NOT NULL,
    thread_id bigint,
    message_id bigint,
    verdict_id bigint,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz
);
CREATE INDEX discord_submission_open_idx ON runner.discord_submission (submission_id) WHERE ended_at IS NULL;
COMMENT ON TABLE runner.discord_submission IS
    'Submissions by Discord: the command and its channel; private thread, message in it and public verdict once '
    'they are '
    'there; ended_at once everything is said.';
