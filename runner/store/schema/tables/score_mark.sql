-- Up to which row of leaderboard.runs the scores have been copied.
CREATE TABLE runner.score_mark (
    run_id bigint NOT NULL,
    next_id bigint NOT NULL,
    noted_at timestamptz NOT NULL,
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row)
);
COMMENT ON TABLE runner.score_mark IS
    'One row: every public score up to run_id is in runner.score; later ones of other programs may not be. It '
    'moves on to '
    'next_id when no transaction of noted_at can be open any more.';
-- `migrate` holds leaderboard.runs, so no transaction is about to write an earlier row.
INSERT INTO runner.score_mark (run_id, next_id, noted_at)
SELECT 0, coalesce(max(r.id), 0), '-infinity' FROM leaderboard.runs r;
