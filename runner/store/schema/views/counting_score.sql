-- The public scores that count: it is a ranked run's and can be a time (other programs may write any number), the time
-- is what the leaderboard demands, the submission is not marked hacked, its user is not banned, the secret run on the
-- same GPU type passed, and none failed there. To be asked for one row of leaderboard.runs at a time: then it walks no
-- table and makes no join.
CREATE OR REPLACE VIEW runner.counting_score AS
SELECT r.id AS run_id, s.id AS submission_id, s.leaderboard_id, r.runner AS gpu_type, s.user_id, r.score,
       s.submission_time, s.file_name,
       coalesce(r.system_info #>> '{runner,assurance,timing}', 'claimed') AS timing,
       coalesce(r.system_info #>> '{runner,assurance,correctness}', 'in_process') AS correctness
FROM leaderboard.runs r
CROSS JOIN LATERAL (SELECT * FROM leaderboard.submission o WHERE o.id = r.submission_id OFFSET 0) AS s
LEFT JOIN LATERAL (SELECT * FROM runner.board o WHERE o.leaderboard_id = s.leaderboard_id OFFSET 0) AS b ON true
WHERE NOT r.secret AND r.mode = 'leaderboard' AND r.passed
  -- NaN is above all numbers.
  AND r.score >= 1e-9 AND r.score < 1e300
  AND CASE WHEN jsonb_typeof(r.meta -> 'duration') = 'number'
      THEN r.score <= (r.meta ->> 'duration')::numeric ELSE true END
  AND coalesce(coalesce(r.system_info #>> '{runner,assurance,timing}', 'claimed') = ANY (b.ranked), true)
  AND s.status IS DISTINCT FROM 'hacked'
  AND (SELECT count(*) FROM leaderboard.submission_job_status t WHERE t.submission_id = s.id
      AND t.status = 'hacked') = 0
  AND (SELECT u.is_banned FROM leaderboard.user_info u WHERE u.id = s.user_id) IS NOT TRUE
  AND (SELECT bool_and(p.passed) AND bool_or(p.mode = 'leaderboard')
       -- Found by the submission: the index on the runner would give all rows of a GPU type.
       FROM (SELECT o.* FROM leaderboard.runs o WHERE o.submission_id = r.submission_id OFFSET 0) AS p
       WHERE p.runner = r.runner AND p.secret);
COMMENT ON VIEW runner.counting_score IS
    'Public scores that count, each to be asked for by its run_id; seconds.';
