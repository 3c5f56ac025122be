-- The public scores that count. runner.counting_score and runner.status apply the same rule.
CREATE OR REPLACE VIEW runner.valid_score AS
SELECT r.id AS run_id, s.id AS submission_id, s.leaderboard_id, r.runner AS gpu_type, s.user_id, r.score,
       s.submission_time,
       -- Rows that other programs write carry no assurance.
       coalesce(r.system_info #>> '{runner,assurance,timing}', 'claimed') AS timing,
       coalesce(r.system_info #>> '{runner,assurance,correctness}', 'in_process') AS correctness
FROM leaderboard.runs r
JOIN leaderboard.submission s ON s.id = r.submission_id
LEFT JOIN runner.board b ON b.leaderboard_id = s.leaderboard_id
WHERE NOT r.secret AND r.score IS NOT NULL AND r.passed
  AND coalesce(coalesce(r.system_info #>> '{runner,assurance,timing}', 'claimed') = ANY (b.ranked), true)
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
    'Public scores that count: the secret run on the same GPU type passed, none failed there, it is not marked hacked, '
    'and the time '
    'is what the leaderboard demands.';
