-- What everyone may see. Of a secret twin that is the verdict, never its output, cases, messages or progress.

CREATE VIEW runner.valid_score AS
SELECT r.id AS run_id, s.id AS submission_id, s.leaderboard_id, r.runner AS gpu_type, s.user_id, r.score,
       s.submission_time
FROM leaderboard.runs r
JOIN leaderboard.submission s ON s.id = r.submission_id
WHERE NOT r.secret AND r.score IS NOT NULL AND r.passed
  AND s.status IS DISTINCT FROM 'hacked'
  AND NOT EXISTS (
      SELECT FROM leaderboard.submission_job_status t WHERE t.submission_id = s.id AND t.status = 'hacked')
  AND EXISTS (
      SELECT FROM leaderboard.runs p
      WHERE p.submission_id = s.id AND p.runner = r.runner AND p.secret AND p.mode = 'leaderboard' AND p.passed)
  AND NOT EXISTS (
      SELECT FROM leaderboard.runs f
      WHERE f.submission_id = s.id AND f.runner = r.runner AND f.secret AND NOT f.passed);
COMMENT ON VIEW runner.valid_score IS
    'Public scores that count: the secret run on the same GPU type passed, none failed there, nobody cheated.';

CREATE VIEW runner.ranking AS
SELECT l.name AS leaderboard, best.gpu_type,
       row_number() OVER (
           PARTITION BY l.name, best.gpu_type ORDER BY best.score, best.submission_time, best.submission_id
       ) AS rank,
       best.user_id, u.user_name, best.submission_id, s.file_name, best.score, best.submission_time
FROM (
    SELECT DISTINCT ON (v.leaderboard_id, v.gpu_type, v.user_id)
           v.leaderboard_id, v.gpu_type, v.user_id, v.submission_id, v.score, v.submission_time
    FROM runner.valid_score v
    ORDER BY v.leaderboard_id, v.gpu_type, v.user_id, v.score, v.submission_time, v.submission_id
) AS best
JOIN leaderboard.leaderboard l ON l.id = best.leaderboard_id
JOIN leaderboard.submission s ON s.id = best.submission_id
JOIN leaderboard.user_info u ON u.id = best.user_id;
COMMENT ON VIEW runner.ranking IS 'Best valid public score per user, leaderboard and GPU type; seconds, rank 1 is fastest.';

CREATE VIEW runner.status AS
SELECT s.id AS submission_id, l.name AS leaderboard, s.user_id, u.user_name, s.file_name, s.submission_time,
       jobs.modes, jobs.gpu_types, jobs.priority, jobs.state,
       -- From mildest to gravest.
       (ARRAY['accepted', 'wrong_answer', 'time_limit', 'memory_limit', 'output_limit', 'runtime_error',
              'compile_error', 'rejected', 'invalid', 'internal_error'])[jobs.gravity] AS verdict,
       coalesce(s.done, false) AS done, t.status AS job_status, t.error,
       (SELECT min(1 + (SELECT count(*) FROM runner.job b
                        WHERE b.state = 'queued' AND b.gpu_type = w.gpu_type
                          AND (b.priority > w.priority OR (b.priority = w.priority AND b.id < w.id))))
        FROM runner.job w WHERE w.submission_id = s.id AND w.state = 'queued') AS position,
       jobs.progress,
       (SELECT min(v.score) FROM runner.valid_score v WHERE v.submission_id = s.id) AS score,
       jobs.queue_ms, jobs.build_ms, jobs.eval_ms, jobs.started_at, jobs.finished_at, jobs.jobs
FROM leaderboard.submission s
JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
JOIN leaderboard.user_info u ON u.id = s.user_id
LEFT JOIN leaderboard.submission_job_status t ON t.submission_id = s.id
CROSS JOIN LATERAL (
    SELECT array_agg(DISTINCT j.mode) AS modes, array_agg(DISTINCT j.gpu_type) AS gpu_types,
           max(j.priority) AS priority,
           CASE
               WHEN bool_or(j.state = 'running') THEN 'running'
               WHEN bool_or(j.state = 'queued') THEN 'queued'
               -- What was not evaluated as a whole is not done, whatever its other jobs found.
               WHEN bool_or(j.state = 'cancelled') THEN 'cancelled'
               ELSE 'done'
           END AS state,
           CASE WHEN bool_and(j.state IN ('done', 'cancelled')) THEN max(array_position(
               ARRAY['accepted', 'wrong_answer', 'time_limit', 'memory_limit', 'output_limit', 'runtime_error',
                     'compile_error', 'rejected', 'invalid', 'internal_error'], j.verdict))
               -- Accepted is a word about all of its jobs.
               FILTER (WHERE NOT (j.verdict = 'accepted' AND o.cancelled)) END AS gravity,
           jsonb_agg(j.progress || jsonb_build_object('gpu_type', j.gpu_type) ORDER BY j.id)
               FILTER (WHERE j.state = 'running' AND NOT j.secret AND j.progress IS NOT NULL) AS progress,
           (extract(epoch FROM min(coalesce(j.started_at, j.finished_at, now())) - min(j.created_at)) * 1000)::bigint
               AS queue_ms,
           max(j.build_ms) AS build_ms, max(j.eval_ms) AS eval_ms,
           min(j.started_at) AS started_at,
           CASE WHEN bool_and(j.finished_at IS NOT NULL) THEN max(j.finished_at) END AS finished_at,
           jsonb_agg(jsonb_build_object(
               'id', j.id, 'gpu_type', j.gpu_type, 'mode', j.mode, 'secret', j.secret, 'state', j.state,
               'verdict', j.verdict, 'attempt', j.attempt, 'host', j.host,
               'error', CASE WHEN NOT j.secret THEN j.error END) ORDER BY j.id) AS jobs
    FROM runner.job j
    CROSS JOIN (SELECT bool_or(c.state = 'cancelled') AS cancelled
                FROM runner.job c WHERE c.submission_id = s.id) AS o
    WHERE j.submission_id = s.id
    HAVING count(*) > 0
) AS jobs;
COMMENT ON VIEW runner.status IS 'A line per submission; times in milliseconds, score in seconds; verdict when all jobs are over.';

CREATE VIEW runner.result AS
SELECT r.submission_id, x.job_id, r.id AS run_id, r.runner AS gpu_type, r.mode, r.secret, r.passed,
       CASE WHEN NOT r.secret THEN r.score END AS score,
       r.start_time, r.end_time,
       CASE WHEN NOT r.secret THEN r.result END AS result,
       CASE WHEN NOT r.secret THEN r.compilation END AS compilation,
       CASE WHEN NOT r.secret THEN r.meta END AS meta,
       r.system_info
FROM leaderboard.runs r
LEFT JOIN runner.job_run x ON x.run_id = r.id;
COMMENT ON VIEW runner.result IS 'The rows of leaderboard.runs as a submission''s author may see them.';
