-- A constant default: no row is written anew.
ALTER TABLE runner.job ADD unanswered integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN runner.job.unanswered IS 'Claims of it whose answer its daemon never read; from the fourth on, each counts as a lost lease.';
ALTER TABLE runner.job ADD expires_at timestamptz;
COMMENT ON COLUMN runner.job.expires_at IS 'A job that still waits then is cancelled; NULL: never.';
ALTER TABLE runner.share ADD claimed bigint NOT NULL DEFAULT -1;
COMMENT ON COLUMN runner.share.claimed IS 'The last turn of the user''s that was claimed ahead of the clock.';

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

CREATE TABLE runner.score_mark (
    run_id bigint NOT NULL,
    next_id bigint NOT NULL,
    noted_at timestamptz NOT NULL
);
COMMENT ON TABLE runner.score_mark IS
    'One row: every public score up to run_id is in runner.score; later ones of other programs may not be. It moves on to '
    'next_id when no transaction of noted_at can be open any more.';
-- The tables are locked, so no transaction is about to write an earlier row.
INSERT INTO runner.score_mark (run_id, next_id, noted_at)
SELECT 0, coalesce(max(r.id), 0), '-infinity' FROM leaderboard.runs r;

ALTER TABLE runner.board ADD max_open_jobs integer CONSTRAINT board_max_open_jobs CHECK (max_open_jobs > 0);
COMMENT ON COLUMN runner.board.max_open_jobs IS 'How many jobs of a user may wait or run on this leaderboard; NULL: any number.';

CREATE TABLE runner.pause (
    gpu_type text PRIMARY KEY,
    reason text NOT NULL,
    since timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE runner.pause IS 'GPU types, in lower case and with all their names, of which no job is claimed.';

-- They have more arguments.
DROP FUNCTION IF EXISTS runner.submit(text, text, text, bytea, text, text[], text, integer, text);
DROP FUNCTION IF EXISTS runner.matching(bigint, text, text, timestamptz, timestamptz, text[]);
DROP FUNCTION IF EXISTS runner.rerun(bigint, text, text, timestamptz, timestamptz, text[], text, integer);
DROP FUNCTION IF EXISTS runner.invalidate(bigint, text, text, timestamptz, timestamptz, text[], text);
