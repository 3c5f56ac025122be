-- What runner.matching returns.
CREATE TYPE runner.evaluation AS (
    submission_id integer,
    leaderboard text,
    user_id text,
    gpu_type text,
    mode text,
    twins bigint[],
    counting bigint[],
    obstacle text
);
COMMENT ON TYPE runner.evaluation IS
    'What a submission has on a GPU type in a mode: its latest finished jobs, those that count, why it cannot '
    'run again.';
