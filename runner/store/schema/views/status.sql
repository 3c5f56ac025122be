-- One line per submission. For an evaluation with an open job, the line speaks of that job; else of the job that counts
-- or was invalidated. Of a secret job it shows the verdict, never output, cases, messages, progress or how long it
-- took: a submission could sleep for as long as its secret data say. An end that a secret job made is rounded up to a
-- second.
CREATE OR REPLACE VIEW runner.status AS
SELECT s.id AS submission_id, l.name AS leaderboard, s.user_id, u.user_name, s.file_name, s.submission_time,
       jobs.modes, jobs.gpu_types, jobs.priority, jobs.state,
       -- From mildest to gravest. Accepted means that all of its jobs were.
       CASE WHEN NOT jobs.open AND NOT (jobs.gravity = 1 AND jobs.partial) THEN
           (ARRAY['accepted', 'wrong_answer', 'time_limit', 'memory_limit', 'output_limit', 'runtime_error',
                  'compile_error', 'rejected', 'invalid', 'internal_error'])[jobs.gravity] END AS verdict,
       coalesce(s.done, false) AS done, t.status AS job_status,
       -- KernelBot's row lacks most reasons. It has those of what was not evaluated as a whole.
       CASE WHEN jobs.open OR jobs.partial THEN t.error ELSE coalesce(jobs.reason, t.error) END AS error,
       -- Each half is a range of job_ready_idx, and ordered, so that only this index is a way to it. Counting ends at
       -- 1000: a longer queue costs a status no more.
       (SELECT min(1 + ahead.jobs)
        FROM (SELECT DISTINCT ON (q.gpu_type) q.gpu_type, q.priority, q.turn, q.id
              -- OFFSET: jobs are found by the submission first. Else the planner might walk the whole queue in order.
              FROM (SELECT o.* FROM runner.job o WHERE o.submission_id = s.id OFFSET 0) AS q
              WHERE q.state = 'queued' AND q.ready
              ORDER BY q.gpu_type, q.priority DESC, q.turn, q.id) AS w
        CROSS JOIN LATERAL (
            SELECT count(*) AS jobs FROM (
                (SELECT FROM runner.job b
                 WHERE b.state = 'queued' AND b.ready AND b.gpu_type = w.gpu_type AND b.priority > w.priority
                 ORDER BY b.priority DESC, b.turn, b.id LIMIT 1000)
                UNION ALL
                (SELECT FROM runner.job b
                 WHERE b.state = 'queued' AND b.ready AND b.gpu_type = w.gpu_type AND b.priority = w.priority
                   AND (b.turn, b.id) < (w.turn, w.id)
                 ORDER BY b.turn, b.id LIMIT 1000)
                LIMIT 1000
            ) AS first
        ) AS ahead) AS position,
       jobs.progress,
       times.score,
       jobs.queue_ms, jobs.build_ms, jobs.eval_ms, jobs.started_at, jobs.finished_at, jobs.jobs,
       jobs.phase, jobs.attempts, jobs.retry_reason, jobs.retry_at, jobs.reruns, jobs.rerunning,
       times.timing, times.correctness, times.unranked,
       -- Since when no host has served a GPU type that the submission waits for. A row of runner.host may be gone.
       (SELECT min(greatest(w.created_at, w.last_seen))
        FROM (SELECT q.gpu_type, min(q.created_at) AS created_at, max(h.last_seen) AS last_seen,
                     bool_or(coalesce(h.lives, false)) AS served
              FROM (SELECT o.* FROM runner.job o WHERE o.submission_id = s.id OFFSET 0) AS q
              LEFT JOIN LATERAL (
                  SELECT n.last_seen, NOT n.draining AND n.stopped_at IS NULL
                                      AND n.last_seen > now() - interval '60 seconds' AS lives
                  FROM runner.host n WHERE q.gpu_type = ANY (n.gpu_types)
              ) AS h ON true
              WHERE q.state = 'queued' GROUP BY q.gpu_type) AS w
        WHERE NOT w.served) AS no_host_since,
       -- Why hosts begin no job of the leaderboard, or of a GPU type that it waits for.
       (SELECT min(coalesce(b.paused, p.reason))
        FROM (SELECT o.* FROM runner.job o WHERE o.submission_id = s.id OFFSET 0) AS q
        LEFT JOIN runner.board b ON b.leaderboard_id = s.leaderboard_id
        LEFT JOIN runner.pause p ON p.gpu_type = lower(q.gpu_type)
        WHERE q.state = 'queued') AS paused
FROM leaderboard.submission s
JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
JOIN leaderboard.user_info u ON u.id = s.user_id
LEFT JOIN leaderboard.submission_job_status t ON t.submission_id = s.id
CROSS JOIN LATERAL (
    SELECT bool_or(j.open) AS open,
           array_agg(DISTINCT j.mode) AS modes, array_agg(DISTINCT j.gpu_type) AS gpu_types,
           coalesce(max(j.priority) FILTER (WHERE j.open), max(j.priority)) AS priority,
           CASE
               WHEN bool_or(j.state = 'running') THEN 'running'
               WHEN bool_or(j.state = 'queued') THEN 'queued'
               -- A submission that was not evaluated as a whole is not done, whatever its other jobs found.
               WHEN bool_or(j.current AND j.state = 'cancelled') THEN 'cancelled'
               ELSE 'done'
           END AS state,
           max(j.gravity) FILTER (WHERE j.current AND j.retired_at IS NULL) AS gravity,
           -- The gravest job's. NULL for a secret one, and for our faults: KernelBot's row has sentences for both.
           (array_agg(CASE WHEN NOT j.secret AND j.verdict <> 'internal_error' THEN j.error END
               ORDER BY j.gravity DESC, j.id) FILTER (WHERE j.current AND j.gravity > 1))[1] AS reason,
           bool_or(j.current AND (j.state = 'cancelled' OR j.retired_at IS NOT NULL)) AS partial,
           jsonb_agg(j.progress || jsonb_build_object('gpu_type', j.gpu_type) ORDER BY j.id)
               FILTER (WHERE j.state = 'running' AND NOT j.secret AND j.progress IS NOT NULL) AS progress,
           (extract(epoch FROM min(coalesce(j.started_at, j.finished_at, now())) FILTER (WHERE j.current)
                               - min(j.created_at) FILTER (WHERE j.current)) * 1000)::bigint AS queue_ms,
           max(j.build_ms) FILTER (WHERE j.current AND NOT j.secret) AS build_ms,
           max(j.eval_ms) FILTER (WHERE j.current AND NOT j.secret) AS eval_ms,
           min(j.started_at) FILTER (WHERE j.current) AS started_at,
           CASE WHEN NOT bool_or(j.open) THEN
               CASE WHEN bool_or(j.secret) FILTER (WHERE j.current)
                    THEN date_trunc('second',
                        max(j.finished_at) FILTER (WHERE j.current) + interval '999999 microseconds')
                    ELSE max(j.finished_at) FILTER (WHERE j.current) END
           END AS finished_at,
           jsonb_agg(jsonb_build_object(
               'id', j.id, 'gpu_type', j.gpu_type, 'mode', j.mode, 'secret', j.secret, 'state', j.state,
               'verdict', j.verdict, 'attempt', j.attempt, 'host', j.host,
               'error', CASE WHEN NOT j.secret THEN j.error END,
               'phase', j.phase, 'replaces', j.replaces, 'retired', j.retired_as, 'retired_reason', j.retired_reason
               ) ORDER BY j.id) AS jobs,
           CASE count(*) FILTER (WHERE j.leads)
               WHEN 1 THEN max(j.phase) FILTER (WHERE j.leads)
               ELSE string_agg(j.gpu_type || ': ' || j.phase, '; ' ORDER BY j.id) FILTER (WHERE j.leads)
           END AS phase,
           max(j.attempt) FILTER (WHERE j.current) AS attempts,
           (array_agg(
               CASE j.causes -> -1 ->> 'kind'
                   WHEN 'reclaim' THEN format('host %s stopped answering', j.causes -> -1 ->> 'host')
                   ELSE format('a fault of host %s, not of the submission', j.causes -> -1 ->> 'host')
               END ORDER BY j.causes -> -1 ->> 'at' DESC)
               FILTER (WHERE j.open AND j.causes <> '[]'))[1] AS retry_reason,
           min(j.not_before) FILTER (WHERE j.state = 'queued' AND j.not_before > now()) AS retry_at,
           max(j.reruns) AS reruns,
           bool_or(j.open AND j.replaces IS NOT NULL) AS rerunning
    FROM (
        SELECT o.*,
               array_position(
                   ARRAY['accepted', 'wrong_answer', 'time_limit', 'memory_limit', 'output_limit', 'runtime_error',
                         'compile_error', 'rejected', 'invalid', 'internal_error'], o.verdict) AS gravity,
               o.open OR (NOT o.superseding AND (o.retired_at IS NULL OR o.retired_as = 'invalidated')) AS current,
               -- The job that says most of an evaluation: the one that runs, else the public one.
               o.open AND o.id = first_value(o.id) OVER (
                   PARTITION BY o.gpu_type, o.mode ORDER BY o.state = 'running' DESC, o.open DESC, o.secret, o.id
               ) AS leads,
               CASE
                   WHEN NOT o.open THEN NULL
                   WHEN o.cancel_requested THEN 'stopping'
                   WHEN o.state = 'queued' AND o.not_before > now() AND o.attempt = 0 THEN 'queued for later'
                   WHEN o.state = 'queued' AND o.not_before > now() THEN 'queued to be tried again'
                   WHEN o.state = 'queued' THEN 'queued'
                   WHEN o.secret THEN 'secret run'
                   WHEN o.progress IS NULL THEN 'starting'
                   WHEN o.step IN ('build', 'compile', 'nvcc-version') THEN 'building'
                   WHEN o.step = o.mode AND o.step <> 'profile' AND o.total > 0 AND o.finished >= o.total
                       THEN 'finishing'
                   ELSE CASE o.step
                       WHEN 'test' THEN 'testing'
                       WHEN 'benchmark' THEN 'benchmarking'
                       WHEN 'leaderboard' THEN 'ranked run'
                       WHEN 'profile' THEN 'profiling'
                       ELSE o.step
                   END || CASE
                       -- A profile is made case by case: the case's number is in the name of the step, profile.0, .1,
                       -- and so on
                       WHEN o.step = 'profile' THEN coalesce(
                           format(' case %s', substring(o.progress ->> 'phase'
                               FROM '^profile\.(\d{1,6})$')::integer + 1), '')
                       WHEN o.total > 0 THEN format(' case %s of %s', least(o.finished + 1, o.total), o.total)
                       ELSE ''
                   END
               END AS phase
        FROM (
            SELECT j.*, j.state IN ('queued', 'running') AS open,
                   bool_or(j.state IN ('queued', 'running')) OVER one_key AS superseding,
                   count(j.replaces) OVER one_key AS reruns,
                   split_part(j.progress ->> 'phase', '.', 1) AS step,
                   -- Any version of the daemon may have written it.
                   CASE jsonb_typeof(j.progress -> 'done') WHEN 'number'
                       THEN least(greatest((j.progress -> 'done')::numeric, 0), 999999999)::integer END AS finished,
                   CASE jsonb_typeof(j.progress -> 'total') WHEN 'number'
                       THEN least(greatest((j.progress -> 'total')::numeric, 0), 999999999)::integer END AS total
            FROM runner.job j
            WHERE j.submission_id = s.id
            WINDOW one_key AS (PARTITION BY j.gpu_type, j.mode, j.secret)
        ) AS o
    ) AS j
    HAVING count(*) > 0
) AS jobs
-- Score and assurance of its public runs. They are found through the jobs, because leaderboard.runs has no index on the
-- submission. They are aggregated, because an ORDER BY with a LIMIT would let the planner walk an index of all runs.
LEFT JOIN LATERAL (
    SELECT min(r.score) FILTER (WHERE r.counts) AS score,
           -- That of the score, if there is one; else of the ranked run, or of the benchmark before it.
           coalesce((array_agg(r.timing ORDER BY r.score, r.id) FILTER (WHERE r.counts))[1],
                    (array_agg(r.timing ORDER BY r.mode DESC, r.id DESC))[1]) AS timing,
           coalesce((array_agg(r.correctness ORDER BY r.score, r.id) FILTER (WHERE r.counts))[1],
                    (array_agg(r.correctness ORDER BY r.mode DESC, r.id DESC))[1]) AS correctness,
           CASE count(*) FILTER (WHERE r.mode = 'leaderboard')
               WHEN 1 THEN max(r.unranked)
               ELSE string_agg(r.gpu_type || ': ' || r.unranked, '; ' ORDER BY r.id)
           END AS unranked
    FROM (
        SELECT o.id, o.gpu_type, o.mode, o.score, o.timing, o.correctness,
               (SELECT count(*) FROM runner.counting_score c WHERE c.run_id = o.id) > 0 AS counts,
               CASE
                   WHEN o.mode <> 'leaderboard' OR NOT o.passed THEN NULL
                   WHEN u.is_banned THEN 'its user is banned'
                   WHEN NOT o.ranks THEN
                       format('this board ranks %s times only; this time is %s', o.demanded, o.timing)
                           || coalesce(': ' || o.detail, '')
               END AS unranked
        FROM (
            SELECT r.id, r.runner AS gpu_type, r.mode, r.score, r.passed, d.timing AS demanded, w.timing, w.correctness,
                   r.system_info #>> '{runner,unranked,detail}' AS detail,
                   coalesce(w.timing = ANY (d.ranked), true) AS ranks
            FROM (SELECT i.* FROM runner.job i WHERE i.submission_id = s.id OFFSET 0) AS a
            JOIN runner.job_run x ON x.job_id = a.id
            JOIN leaderboard.runs r ON r.id = x.run_id
            LEFT JOIN runner.board d ON d.leaderboard_id = s.leaderboard_id
            CROSS JOIN LATERAL (
                SELECT coalesce(r.system_info #>> '{runner,assurance,timing}', 'claimed') AS timing,
                       coalesce(r.system_info #>> '{runner,assurance,correctness}', 'in_process') AS correctness
            ) AS w
            WHERE NOT r.secret AND r.mode IN ('benchmark', 'leaderboard')
        ) AS o
    ) AS r
) AS times ON true;
COMMENT ON VIEW runner.status
    IS 'A line per submission; times in milliseconds, score in seconds; verdict when all jobs are over.';
