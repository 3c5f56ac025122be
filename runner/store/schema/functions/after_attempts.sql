-- Called when jobs of these submissions are no longer running. Writes the final status of those whose last job that
-- was, and returns them. The others wait again, if none of their jobs runs. The caller holds the locks on the
-- submissions' rows.
CREATE OR REPLACE FUNCTION runner.after_attempts(submission_ids integer[]) RETURNS integer[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_done integer[] := coalesce(runner.settle_all(after_attempts.submission_ids), '{}');
    v_waiting integer[];
BEGIN
    IF after_attempts.submission_ids <@ v_done THEN
        RETURN v_done;
    END IF;
    SELECT array_agg(u.id ORDER BY u.id) INTO v_waiting
    FROM unnest(after_attempts.submission_ids) AS u (id)
    CROSS JOIN LATERAL (
        SELECT bool_or(j.state = 'running') AS runs FROM runner.job j WHERE j.submission_id = u.id
    ) AS n
    WHERE NOT u.id = ANY (v_done) AND NOT n.runs;
    IF v_waiting IS NOT NULL THEN
        UPDATE leaderboard.submission_job_status t SET status = 'pending'
        FROM unnest(v_waiting) AS w (id)
        CROSS JOIN LATERAL (SELECT k.id FROM leaderboard.submission_job_status k
                            WHERE k.submission_id = w.id AND k.status = 'running' FOR NO KEY UPDATE) AS waits
        WHERE t.id = waits.id AND t.submission_id = ANY (v_waiting);
    END IF;
    RETURN v_done;
END
$$;
