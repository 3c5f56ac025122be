-- What is wrong or odd with the data: a row per check and run, submission or code.
--
-- unusable: the score does not rank in any view runner.dataset_*. suspect: look at it. reported: for information. Checks
-- that read the submitted code are not here; `kernel-runner data check` makes them.
CREATE OR REPLACE VIEW runner.oddity AS
WITH scored AS (
    SELECT w.*,
           -- The best of the same author, and of the leaderboard, before this run.
           min(w.score) OVER (PARTITION BY w.leaderboard_id, w.runner, w.user_id ORDER BY w.submission_time, w.run_id
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS own_best,
           min(w.score) OVER (PARTITION BY w.leaderboard_id, w.runner ORDER BY w.submission_time, w.run_id
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS record
    FROM (
        SELECT p.run_id, p.submission_id, p.leaderboard_id, p.problem_name, p.user_id, p.code_id, p.submission_time,
               p.runner, p.mode, p.score_raw, p.score_invalid_reason AS reason,
               CASE WHEN p.score_invalid_reason IS NULL THEN p.score_raw END AS score,
               c.highest_sol,
               CASE l.task ->> 'ranking_by'
                   WHEN 'mean' THEN c.mean
                   WHEN 'geom' THEN c.geom
                   ELSE c.last
               END AS expected
        FROM runner.public_run p
        JOIN leaderboard.leaderboard l ON l.id = p.leaderboard_id
        LEFT JOIN LATERAL (
            SELECT max(x.sol) AS highest_sol,
                   CASE WHEN count(*) = count(x.mean) THEN avg(x.mean) / 1e9 END AS mean,
                   CASE WHEN count(*) = count(*) FILTER (WHERE x.mean > 0)
                       THEN exp(avg(CASE WHEN x.mean > 0 THEN ln(x.mean) END)) / 1e9 END AS geom,
                   (array_agg(x.mean ORDER BY x.i DESC))[1] / 1e9 AS last
            FROM (
                SELECT i,
                       CASE WHEN p.result ->> concat('benchmark.', i, '.mean') ~ n.number
                           THEN (p.result ->> concat('benchmark.', i, '.mean'))::float8 END AS mean,
                       CASE WHEN p.result ->> concat('benchmark.', i, '.sol') ~ n.number
                           THEN (p.result ->> concat('benchmark.', i, '.sol'))::float8 END AS sol
                FROM generate_series(0, p.cases - 1) AS i
                CROSS JOIN (VALUES ('^[0-9]{1,15}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?$')) AS n (number)
            ) AS x
        ) AS c ON p.kind = 'benchmark'
        WHERE p.score_raw IS NOT NULL
    ) AS w
)
SELECT f."check", f.severity, s.leaderboard_id, s.problem_name, s.submission_id, s.run_id, s.runner, s.user_id, f.reason
FROM scored s
CROSS JOIN LATERAL (VALUES
    (s.reason, 'unusable', s.reason IN (
        'hacked', 'invalidated', 'outside_leaderboard', 'not_passed', 'nan', 'infinite', 'negative', 'zero', 'below_1ns',
        'longer_than_run'), format('a score of %s s in mode %s', s.score_raw, s.mode)),
    ('faster_than_light', 'suspect', s.score IS NOT NULL AND s.highest_sol > 1,
     format('%s times the speed of light', s.highest_sol)),
    ('score_differs', 'suspect', s.score IS NOT NULL AND abs(s.score - s.expected) > 1e-6 * s.expected,
     format('the score is %s s, its cases say %s s', s.score, s.expected)),
    ('sudden_gain', 'suspect', s.score * 5 <= s.own_best,
     format('%s s, and the author''s best before was %s s', s.score, s.own_best)),
    ('record_leap', 'suspect', s.score * 3 <= s.record, format('%s s, and the record before was %s s', s.score, s.record))
) AS f ("check", severity, found, reason)
WHERE f.found
UNION ALL
SELECT f."check", 'suspect', p.leaderboard_id, p.problem_name, p.submission_id, p.run_id, p.runner, p.user_id, f.reason
FROM runner.public_run p
CROSS JOIN LATERAL (VALUES
    ('end_before_start', p.end_time < p.start_time, format('from %s to %s', p.start_time, p.end_time)),
    ('start_before_submission', p.start_time < p.submission_time,
     format('submitted at %s, started at %s', p.submission_time, p.start_time))
) AS f ("check", found, reason)
WHERE f.found
UNION ALL
SELECT f."check", f.severity, s.leaderboard_id, l.name, s.id, NULL, NULL, s.user_id, f.reason
FROM leaderboard.submission s
JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
LEFT JOIN leaderboard.submission_job_status t ON t.submission_id = s.id
LEFT JOIN leaderboard.user_info u ON u.id = s.user_id
LEFT JOIN (
    SELECT o.code_id, count(DISTINCT o.user_id) AS users
    FROM leaderboard.submission o GROUP BY o.code_id HAVING min(o.user_id) <> max(o.user_id)
) AS h ON h.code_id = s.code_id
CROSS JOIN LATERAL (VALUES
    ('hacked', 'unusable', (s.status = 'hacked' OR t.status = 'hacked')
         AND NOT EXISTS (SELECT FROM scored x WHERE x.submission_id = s.id), 'a submission without a score'),
    ('time_implausible', 'suspect', s.submission_time > now() OR s.submission_time < '2024-01-01Z',
     format('submitted at %s', s.submission_time)),
    ('after_deadline', 'suspect', s.submission_time > l.deadline,
     format('submitted at %s, the deadline was %s', s.submission_time, l.deadline)),
    ('code_shared', 'suspect', h.users IS NOT NULL, format('%s users submitted code %s', h.users, s.code_id)),
    ('user_missing', 'suspect', u.id IS NULL, 'the user was deleted')
) AS f ("check", severity, found, reason)
WHERE f.found
UNION ALL
SELECT 'noise', 'reported', s.leaderboard_id, s.problem_name, min(s.submission_id), NULL, s.runner, NULL,
       format('%s scores of code %s spread over %s %% of the best, %s s', count(*), s.code_id,
              round(((max(s.score) / min(s.score) - 1) * 100)::numeric, 2), min(s.score))
FROM scored s
WHERE s.score IS NOT NULL
GROUP BY s.leaderboard_id, s.problem_name, s.runner, s.code_id
HAVING count(*) > 1;
COMMENT ON VIEW runner.oddity IS 'What is wrong or odd with scores, times and submissions, with severity and reason.';
