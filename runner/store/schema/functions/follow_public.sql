-- Decides what becomes of the secret jobs of these submissions whose public job is over. Where that was accepted, the
-- secret job may be claimed, at its own place. Where it was not, the secret job ends as the public one did and never
-- runs. The caller holds the locks on the submissions' rows, and so nothing else ends or starts these jobs.
CREATE OR REPLACE FUNCTION runner.follow_public(submission_ids integer[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_job record;
BEGIN
    FOR v_job IN
        -- OFFSET makes the submission's index the only way to the jobs, as in settle_all.
        SELECT j.id, p.state, p.verdict, p.cancel_requested, p.error
        FROM unnest(follow_public.submission_ids) AS u (id)
        CROSS JOIN LATERAL (SELECT o.* FROM runner.job o WHERE o.submission_id = u.id OFFSET 0) AS j
        CROSS JOIN LATERAL (
            -- The one that it was made with, or that was evaluated again after it.
            SELECT q.state, q.verdict, q.cancel_requested, q.error
            FROM (SELECT o.* FROM runner.job o WHERE o.submission_id = u.id OFFSET 0) AS q
            WHERE q.gpu_type = j.gpu_type AND q.mode = j.mode AND NOT q.secret
            ORDER BY q.id DESC LIMIT 1
        ) AS p
        WHERE j.after_public AND j.state = 'queued' AND p.state IN ('done', 'cancelled')
        ORDER BY j.id
    LOOP
        IF v_job.verdict = 'accepted' THEN
            UPDATE runner.job j SET after_public = false, ready = true WHERE j.id = v_job.id;
            PERFORM runner.queue_again(v_job.id);
        ELSE
            UPDATE runner.job j
            SET after_public = false, state = v_job.state, verdict = v_job.verdict, finished_at = now(),
                cancel_requested = v_job.cancel_requested,
                error = CASE v_job.state WHEN 'done' THEN format('not run: the public run ended as %s', v_job.verdict)
                                         ELSE v_job.error END
            WHERE j.id = v_job.id;
        END IF;
    END LOOP;
END
$$;
