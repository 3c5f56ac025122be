-- The rows of leaderboard.runs as an author may see them: of a secret run the verdict, no output, no time, and
-- nothing of its host: readings during a run say how long it took.
--
-- Our results are found through their jobs, because leaderboard.runs has no index on the submission. The table is
-- searched only where another program may have written results: for submissions without a job, and for enqueued ones.
CREATE OR REPLACE VIEW runner.result AS
SELECT a.submission_id, a.job_id, a.run_id, a.gpu_type, a.mode, a.secret, a.passed,
       CASE WHEN NOT a.secret THEN a.score END AS score,
       CASE WHEN NOT a.secret THEN a.start_time END AS start_time,
       CASE WHEN NOT a.secret THEN a.end_time END AS end_time,
       CASE WHEN NOT a.secret THEN a.result END AS result,
       CASE WHEN NOT a.secret THEN a.compilation END AS compilation,
       CASE WHEN NOT a.secret THEN a.meta END AS meta,
       CASE WHEN NOT a.secret THEN a.system_info END AS system_info
FROM (
    SELECT s.id AS submission_id, x.job_id, r.id AS run_id, r.runner AS gpu_type, r.mode, r.secret, r.passed, r.score,
           r.start_time, r.end_time, r.result, r.compilation, r.meta, r.system_info
    FROM leaderboard.submission s
    CROSS JOIN LATERAL (SELECT j.id FROM runner.job j WHERE j.submission_id = s.id OFFSET 0) AS j
    CROSS JOIN LATERAL (SELECT * FROM runner.job_run x WHERE x.job_id = j.id OFFSET 0) AS x
    CROSS JOIN LATERAL (SELECT * FROM leaderboard.runs r WHERE r.id = x.run_id OFFSET 0) AS r
    UNION ALL
    SELECT s.id, NULL, r.id, r.runner, r.mode, r.secret, r.passed, r.score,
           r.start_time, r.end_time, r.result, r.compilation, r.meta, r.system_info
    FROM leaderboard.submission s
    -- LEFT, and a condition that does not undo it: the submission comes first, and without one no row is searched.
    LEFT JOIN leaderboard.runs r ON r.submission_id = s.id
    WHERE (SELECT coalesce(bool_or(j.enqueued), true) FROM runner.job j WHERE j.submission_id = s.id)
      AND coalesce(r.id, 0) <> 0
      AND (SELECT count(*) FROM runner.job_run x WHERE x.run_id = r.id) = 0
) AS a;
COMMENT ON VIEW runner.result IS 'The rows of leaderboard.runs as a submission''s author may see them.';
