-- Which transaction wrote each row that runner.dataset_runs and runner.run_figures are made of.
--
-- submission_id is null for leaderboards, which all submissions depend on. An export that has an older one finds here
-- what it need not read again; see runner/data/watermark.py.
CREATE OR REPLACE VIEW runner.dataset_versions AS
SELECT s.id AS submission_id, s.xmin::text::bigint AS written FROM leaderboard.submission s
UNION ALL
SELECT t.submission_id, t.xmin::text::bigint FROM leaderboard.submission_job_status t
UNION ALL
SELECT r.submission_id, r.xmin::text::bigint FROM leaderboard.runs r
UNION ALL
SELECT p.submission_id, p.xmin::text::bigint FROM runner.superseded_run p
UNION ALL
SELECT j.submission_id, j.xmin::text::bigint FROM runner.job j
UNION ALL
SELECT NULL, l.xmin::text::bigint FROM leaderboard.leaderboard l
UNION ALL
SELECT NULL, b.xmin::text::bigint FROM runner.board b;
COMMENT ON VIEW runner.dataset_versions IS 'A row per row that runs in an export depend on, with the transaction that wrote it.';
