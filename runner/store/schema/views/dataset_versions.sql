-- Which transaction wrote each row that runner.entry_plain, runner.dataset_runs and runner.run_figures are made of, but
-- for users.
--
-- submission_id is null for codes and for leaderboards, which all submissions depend on. An export that has an older one
-- finds here what it need not read again; see runner/data/watermark.py.
CREATE OR REPLACE VIEW runner.dataset_versions AS
SELECT s.id AS submission_id, s.xmin::text::bigint AS written, NULL::integer AS code_id FROM leaderboard.submission s
UNION ALL
SELECT t.submission_id, t.xmin::text::bigint, NULL FROM leaderboard.submission_job_status t
UNION ALL
SELECT r.submission_id, r.xmin::text::bigint, NULL FROM leaderboard.runs r
UNION ALL
SELECT p.submission_id, p.xmin::text::bigint, NULL FROM runner.superseded_run p
UNION ALL
SELECT j.submission_id, j.xmin::text::bigint, NULL FROM runner.job j
UNION ALL
SELECT NULL, l.xmin::text::bigint, NULL FROM leaderboard.leaderboard l
UNION ALL
SELECT NULL, b.xmin::text::bigint, NULL FROM runner.board b
UNION ALL
SELECT NULL, c.xmin::text::bigint, c.id FROM leaderboard.code_files c;
COMMENT ON VIEW runner.dataset_versions IS 'A row per row that an export depends on, with the transaction that wrote it.';
