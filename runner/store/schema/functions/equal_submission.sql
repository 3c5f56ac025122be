-- Returns the newest submission of a user's to a leaderboard with the same file that has, for each of these GPU types, an
-- evaluation in this mode that waits, runs or has a result that counts; NULL if there is none.
CREATE OR REPLACE FUNCTION runner.equal_submission(
    leaderboard_id integer, user_id text, hash text, mode text, gpu_types text[], options jsonb
) RETURNS integer
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_code_id integer;
    v_id integer;
BEGIN
    SELECT c.id INTO v_code_id FROM leaderboard.code_files c WHERE c.hash = equal_submission.hash;
    SELECT max(s.id) INTO v_id
    FROM leaderboard.submission s
    WHERE s.user_id = equal_submission.user_id AND s.code_id = v_code_id
      AND s.leaderboard_id = equal_submission.leaderboard_id AND s.status IS DISTINCT FROM 'hacked'
      AND equal_submission.gpu_types <@ (
          SELECT array_agg(j.gpu_type)
          FROM (SELECT o.* FROM runner.job o WHERE o.submission_id = s.id OFFSET 0) AS j
          WHERE j.mode = equal_submission.mode AND j.options IS NOT DISTINCT FROM equal_submission.options
            AND j.retired_at IS NULL
            AND (j.state IN ('queued', 'running') OR j.verdict <> 'internal_error'))
      -- A public or a secret job alone is no evaluation.
      AND NOT (
          SELECT coalesce(bool_or(j.state = 'cancelled' OR j.cancel_requested OR j.verdict = 'internal_error'), false)
          FROM (SELECT o.* FROM runner.job o WHERE o.submission_id = s.id OFFSET 0) AS j
          WHERE j.mode = equal_submission.mode AND j.gpu_type = ANY (equal_submission.gpu_types)
            AND (j.retired_at IS NULL OR j.retired_as = 'invalidated'));
    RETURN v_id;
END
$$;
