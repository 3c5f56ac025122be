-- A row per submission and runner where its score ranks; one row without a runner for a submission that ranks nowhere.
--
-- A score that does not rank counts for nothing here: the row says what it was (score_raw) and why
-- (score_invalid_reason). runner.dataset_submissions keeps the best row per user, code and runner.
CREATE OR REPLACE VIEW runner.entry AS
SELECT e.submission_id, e.leaderboard_id, e.problem_name, e.user_id, e.user_name, e.code_id, e.file_name,
       e.submission_time, e.status, e.score, e.passed, e.mode, e.runner, e.mode_category, e.verdict, e.run_id,
       e.score_raw, e.score_invalid_reason,
       ARRAY(SELECT DISTINCT g."check" COLLATE "C" FROM unnest(q.checks, q.run_ids) AS g ("check", run_id)
             WHERE g.run_id IS NULL OR g.run_id = e.run_id ORDER BY 1) AS flags,
       e.code_sha256, e.code_bytes, e.assurance_correctness, e.assurance_timing, f.sol, e.user_banned
FROM runner.entry_plain e
LEFT JOIN runner.run_figures f ON f.run_id = e.run_id
LEFT JOIN (
    SELECT y.submission_id, array_agg(y."check") AS checks, array_agg(y.run_id) AS run_ids
    FROM runner.dataset_quality y
    WHERE y.severity = 'suspect'
    GROUP BY y.submission_id
) AS q ON q.submission_id = e.submission_id;
COMMENT ON VIEW runner.entry IS
    'A row per submission and runner where its score ranks, else one row per submission; seconds, lower is better.';
