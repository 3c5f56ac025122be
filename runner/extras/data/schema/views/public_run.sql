-- Every public run with its score, and why that score does not rank. The views runner.dataset_* are made from it.
--
-- Runs of invalidated jobs are here too, from runner.superseded_run. This view holds what hosts print, so no role of a
-- frontend reads it.
CREATE OR REPLACE VIEW runner.public_run AS
SELECT a.run_id, a.submission_id, s.leaderboard_id, l.name AS problem_name, s.user_id, s.code_id, s.submission_time,
       a.runner, a.mode, a.passed,
       -- A numeric may lie outside what a double holds; the cast would be an error.
       CASE
           WHEN a.score = 'NaN' THEN 'NaN'::float8
           WHEN a.score >= 1e300 THEN 'Infinity'::float8
           WHEN a.score <= -1e300 THEN '-Infinity'::float8
           WHEN abs(a.score) < 1e-300 THEN 0::float8
           ELSE a.score::float8
       END AS score_raw,
       -- Only the first that applies: the rule of runner.counting_score, with names.
       CASE
           WHEN a.score IS NULL THEN NULL
           WHEN s.status = 'hacked' OR t.status = 'hacked' THEN 'hacked'
           WHEN a.invalidated THEN 'invalidated'
           WHEN a.mode <> 'leaderboard' THEN 'outside_leaderboard'
           WHEN NOT a.passed THEN 'not_passed'
           WHEN a.score = 'NaN' THEN 'nan'
           WHEN a.score >= 1e300 OR a.score <= -1e300 THEN 'infinite'
           WHEN a.score < 0 THEN 'negative'
           WHEN a.score = 0 THEN 'zero'
           WHEN a.score < 1e-9 THEN 'below_1ns'
           WHEN jsonb_typeof(a.meta -> 'duration') = 'number' AND a.score > (a.meta ->> 'duration')::numeric
               THEN 'longer_than_run'
           WHEN a.unranked OR coalesce(a.system_info #>> '{runner,assurance,timing}', 'claimed') <> ALL (b.ranked)
               THEN 'assurance'
           WHEN NOT k.clean THEN 'secret_failed'
           WHEN k.proven IS NOT TRUE THEN 'secret_missing'
           WHEN u.is_banned THEN 'banned'
       END AS score_invalid_reason,
       a.start_time, a.end_time,
       a.system_info #>> '{runner,assurance,correctness}' AS assurance_correctness,
       a.system_info #>> '{runner,assurance,timing}' AS assurance_timing,
       -- Cases that an eval program announces; more than 9,999 are not looked for.
       CASE WHEN a.result ? 'benchmark-count' THEN 'benchmark' ELSE 'test' END AS kind,
       CASE
           WHEN a.result ->> 'benchmark-count' ~ '^[0-9]{1,4}$' THEN (a.result ->> 'benchmark-count')::integer
           WHEN a.result ->> 'test-count' ~ '^[0-9]{1,4}$' THEN (a.result ->> 'test-count')::integer
           ELSE 0
       END AS cases,
       a.result, a.meta, a.system_info
FROM (
    -- A time that is less than the leaderboard demands was moved out of its column.
    SELECT r.id AS run_id, r.submission_id, r.runner, r.mode, r.passed, coalesce(r.score, u.score) AS score,
           r.start_time,
           r.end_time, r.result, r.meta, r.system_info, false AS invalidated,
           r.score IS NULL AND u.score IS NOT NULL AS unranked
    FROM leaderboard.runs r
    CROSS JOIN LATERAL (
        SELECT CASE WHEN jsonb_typeof(r.system_info #> '{runner,unranked,score_s}') = 'number'
                   THEN (r.system_info #>> '{runner,unranked,score_s}')::numeric END AS score
    ) AS u
    WHERE NOT r.secret
    UNION ALL
    SELECT p.run_id, p.submission_id, p.run ->> 'runner', p.run ->> 'mode', (p.run ->> 'passed')::boolean,
           (p.run ->> 'score')::numeric, (p.run ->> 'start_time')::timestamptz, (p.run ->> 'end_time')::timestamptz,
           p.run -> 'result', p.run -> 'meta', p.run -> 'system_info', true, false
    FROM runner.superseded_run p
    JOIN runner.job j ON j.id = p.job_id
    WHERE j.retired_as = 'invalidated' AND NOT (p.run ->> 'secret')::boolean
) AS a
JOIN leaderboard.submission s ON s.id = a.submission_id
JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
LEFT JOIN leaderboard.user_info u ON u.id = s.user_id
LEFT JOIN runner.board b ON b.leaderboard_id = s.leaderboard_id
LEFT JOIN leaderboard.submission_job_status t ON t.submission_id = s.id
LEFT JOIN (
    SELECT r.submission_id, r.runner, bool_or(r.passed AND r.mode = 'leaderboard') AS proven,
           bool_and(r.passed) AS clean
    FROM leaderboard.runs r
    WHERE r.secret
    GROUP BY r.submission_id, r.runner
) AS k ON k.submission_id = a.submission_id AND k.runner = a.runner;
COMMENT ON VIEW runner.public_run IS 'Public runs with score in seconds, and why the score does not rank.';
