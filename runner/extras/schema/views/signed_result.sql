-- A row per receipt: what was signed, and what the database says of the same result, under the names of the statement.
CREATE OR REPLACE VIEW runner.signed_result AS
SELECT c.job_id, c.statement, c.key, c.signature, j.submission_id, s.user_id, s.leaderboard_id, l.name AS leaderboard,
       (SELECT count(*) FROM runner.open_board o WHERE o.leaderboard_id = s.leaderboard_id) > 0 AS published,
           u.is_banned IS TRUE AS user_banned,
       j.gpu_type, CASE WHEN j.secret THEN 'secret' ELSE 'public' END AS run, j.host, j.attempt, d.code_sha256,
       CASE WHEN abs(r.score) > 1e-300 AND abs(r.score) < 1e300 THEN r.score::float8 END AS score_s, r.timing,
           r.correctness,
       j.retired_as, j.retired_reason
FROM runner.receipt c
CROSS JOIN LATERAL (SELECT * FROM runner.job o WHERE o.id = c.job_id OFFSET 0) AS j
CROSS JOIN LATERAL (SELECT * FROM leaderboard.submission o WHERE o.id = j.submission_id OFFSET 0) AS s
CROSS JOIN LATERAL (SELECT * FROM leaderboard.leaderboard o WHERE o.id = s.leaderboard_id OFFSET 0) AS l
CROSS JOIN LATERAL (SELECT o.code_sha256 FROM runner.dataset_codes o WHERE o.submission_id = s.id OFFSET 0) AS d
LEFT JOIN leaderboard.user_info u ON u.id = s.user_id
LEFT JOIN LATERAL (
    SELECT coalesce(o.score, (o.system_info #>> '{runner,unranked,score_s}')::numeric) AS score,
           coalesce(o.system_info #>> '{runner,assurance,timing}', 'claimed') AS timing,
           coalesce(o.system_info #>> '{runner,assurance,correctness}', 'in_process') AS correctness
    FROM runner.job_run x
    JOIN leaderboard.runs o ON o.id = x.run_id
    WHERE x.job_id = j.id AND NOT j.secret AND o.mode = 'leaderboard'
) AS r ON true;
COMMENT ON VIEW runner.signed_result IS 'Receipts, each with what the database says of its result now; seconds.';
