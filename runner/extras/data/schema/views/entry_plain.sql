-- The columns of runner.entry that need no look at the cases of runs, and none at other submissions.
CREATE OR REPLACE VIEW runner.entry_plain AS
SELECT s.id AS submission_id, s.leaderboard_id, l.name AS problem_name, s.user_id,
       coalesce(u.user_name, '') AS user_name, s.code_id, s.file_name, s.submission_time,
       CASE
           WHEN s.status = 'hacked' OR t.status = 'hacked' THEN 'hacked'
           WHEN d.ranks AND s.done THEN 'succeeded'
           WHEN d.score_invalid_reason IN ('invalidated', 'outside_leaderboard', 'not_passed', 'nan', 'infinite',
                                           'negative', 'zero', 'below_1ns', 'longer_than_run') THEN 'failed'
           WHEN s.done AND t.status = 'succeeded' THEN 'failed'
           ELSE coalesce(t.status::text, s.status)
       END AS status,
       CASE WHEN d.ranks THEN d.score_raw END AS score,
       CASE WHEN d.ranks THEN true END AS passed,
       CASE WHEN d.ranks THEN d.mode END AS mode,
       CASE WHEN d.ranks THEN d.runner END AS runner,
       s.mode_category, j.verdict, d.run_id, d.score_raw, d.score_invalid_reason,
       CASE WHEN c.old_code IS NULL THEN c.hash
           ELSE encode(sha256(convert_to(c.old_code, 'UTF8')), 'hex') END AS code_sha256,
       coalesce(octet_length(c.old_code), octet_length(c.code)) AS code_bytes,
       d.assurance_correctness, d.assurance_timing, u.user_banned IS TRUE AS user_banned
FROM leaderboard.submission s
JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
LEFT JOIN runner.dataset_users u ON u.user_id = s.user_id
LEFT JOIN leaderboard.submission_job_status t ON t.submission_id = s.id
LEFT JOIN leaderboard.code_files c ON c.id = s.code_id
LEFT JOIN (
    SELECT r.*, bool_or(r.ranks) OVER one_submission AS any_ranks,
           row_number() OVER (one_submission ORDER BY r.mode = 'leaderboard' DESC, r.score_raw, r.run_id) AS place
    FROM (
        SELECT p.submission_id, p.run_id, p.runner, p.mode, p.score_raw, p.score_invalid_reason,
               p.score_invalid_reason IS NULL AS ranks, p.assurance_correctness, p.assurance_timing
        FROM runner.public_run p
        WHERE p.score_raw IS NOT NULL
    ) AS r
    WINDOW one_submission AS (PARTITION BY r.submission_id)
) AS d ON d.submission_id = s.id AND (d.ranks OR NOT d.any_ranks AND d.place = 1)
LEFT JOIN (
    -- One verdict per submission, as runner.status gives it: the gravest, when all of its jobs are over.
    SELECT o.submission_id,
           CASE WHEN NOT bool_or(o.open) AND NOT (
                   max(o.gravity) FILTER (WHERE o.retired_at IS NULL) = 1
                   AND bool_or(o.retired_as IS NOT DISTINCT FROM 'invalidated' OR o.retired_at IS NULL
                       AND o.state = 'cancelled'))
               THEN (ARRAY['accepted', 'wrong_answer', 'time_limit', 'memory_limit', 'output_limit', 'runtime_error',
                           'compile_error', 'rejected', 'invalid', 'internal_error'])
                    [max(o.gravity) FILTER (WHERE o.retired_at IS NULL)]
           END AS verdict
    FROM (
        SELECT i.submission_id, i.state, i.retired_at, i.retired_as, i.state IN ('queued', 'running') AS open,
               array_position(
                   ARRAY['accepted', 'wrong_answer', 'time_limit', 'memory_limit', 'output_limit', 'runtime_error',
                         'compile_error', 'rejected', 'invalid', 'internal_error'], i.verdict) AS gravity
        FROM runner.job i
    ) AS o
    GROUP BY o.submission_id
) AS j ON j.submission_id = s.id;
COMMENT ON VIEW runner.entry_plain IS
    'A row per submission and runner where its score ranks, else one row per submission; seconds, lower is better.';
