-- Copies of public scores, in the order in which runner.ranking reads them. Whether a score counts is asked of the rows
-- of schema leaderboard each time, because other programs may change those.
CREATE TABLE runner.score (
    run_id integer PRIMARY KEY REFERENCES leaderboard.runs (id) ON DELETE CASCADE,
    leaderboard_id integer NOT NULL,
    gpu_type text NOT NULL,
    user_id text NOT NULL,
    score numeric NOT NULL,
    submission_time timestamptz NOT NULL,
    submission_id integer NOT NULL
);
CREATE INDEX score_place_idx ON runner.score (leaderboard_id, gpu_type, user_id, score, submission_time, submission_id);
COMMENT ON TABLE runner.score IS 'Where runner.ranking looks for the best score of each user; seconds.';
