-- The rows of runner.dataset_quality that need no look at the cases of runs.
CREATE OR REPLACE VIEW runner.oddity_plain AS
WITH scored AS (SELECT * FROM runner.run_scored)
-- Reasons are made in the list of columns, so that only those of findings are made.
SELECT f."check", f.severity, s.leaderboard_id, s.problem_name, s.submission_id, s.run_id, s.runner, s.user_id,
       CASE f."check"
           WHEN 'sudden_gain' THEN format('%s s, and the author''s best before was %s s', s.score, s.own_best)
           WHEN 'record_leap' THEN format('%s s, and the record before was %s s', s.score, s.record)
           ELSE format('a score of %s s in mode %s', s.score_raw, s.mode)
       END AS reason
FROM scored s
CROSS JOIN LATERAL (VALUES
    (s.reason, 'unusable', s.reason IN (
        'hacked', 'invalidated', 'outside_leaderboard', 'not_passed', 'nan', 'infinite', 'negative', 'zero',
        'below_1ns',
        'longer_than_run')),
    ('sudden_gain', 'suspect', s.score * 5 <= s.own_best),
    ('record_leap', 'suspect', s.score * 3 <= s.record)
) AS f ("check", severity, found)
WHERE f.found AND (s.reason IS NOT NULL OR s.score * 5 <= s.own_best OR s.score * 3 <= s.record)
UNION ALL
SELECT f."check", 'suspect', p.leaderboard_id, p.problem_name, p.submission_id, p.run_id, p.runner, p.user_id,
       CASE f."check"
           WHEN 'end_before_start' THEN format('from %s to %s', p.start_time, p.end_time)
           ELSE format('submitted at %s, started at %s', p.submission_time, p.start_time)
       END
FROM runner.public_run p
CROSS JOIN LATERAL (VALUES
    ('end_before_start', p.end_time < p.start_time),
    ('start_before_submission', p.start_time < p.submission_time)
) AS f ("check", found)
WHERE (p.end_time < p.start_time OR p.start_time < p.submission_time) AND f.found
UNION ALL
SELECT f."check", f.severity, s.leaderboard_id, l.name, s.id, NULL, NULL, s.user_id,
       CASE f."check"
           WHEN 'hacked' THEN 'a submission without a score'
           WHEN 'time_implausible' THEN format('submitted at %s', s.submission_time)
           WHEN 'after_deadline' THEN format('submitted at %s, the deadline was %s', s.submission_time, l.deadline)
           WHEN 'code_shared' THEN format('%s users submitted code %s', h.users, s.code_id)
           WHEN 'user_missing' THEN 'the user was deleted'
       END
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
         AND NOT EXISTS (SELECT FROM scored x WHERE x.submission_id = s.id)),
    ('time_implausible', 'suspect', s.submission_time > now() OR s.submission_time < '2024-01-01Z'),
    ('after_deadline', 'suspect', s.submission_time > l.deadline),
    ('code_shared', 'suspect', h.users IS NOT NULL),
    ('user_missing', 'suspect', u.id IS NULL)
) AS f ("check", severity, found)
-- Most submissions have none of these; so much is soon said.
WHERE f.found AND (s.status = 'hacked' OR t.status = 'hacked' OR s.submission_time > now()
    OR s.submission_time < '2024-01-01Z' OR s.submission_time > l.deadline OR h.users IS NOT NULL OR u.id IS NULL)
UNION ALL
SELECT 'noise', 'reported', s.leaderboard_id, s.problem_name, min(s.submission_id), NULL, s.runner, NULL,
       format('%s scores of code %s spread over %s %% of the best, %s s', count(*), s.code_id,
              round(((max(s.score) / min(s.score) - 1) * 100)::numeric, 2), min(s.score))
FROM scored s
WHERE s.score IS NOT NULL
GROUP BY s.leaderboard_id, s.problem_name, s.runner, s.code_id
HAVING count(*) > 1;
COMMENT ON VIEW runner.oddity_plain
    IS 'What is wrong or odd with scores, times and submissions, but for what cases of runs say.';
