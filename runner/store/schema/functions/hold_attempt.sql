-- Locks a running job for who ends its attempt, after its submission or batch. `held`: it is the caller's attempt.
CREATE OR REPLACE FUNCTION runner.hold_attempt(
    job_id bigint, attempt integer, submission_id integer, OUT job runner.job, OUT held boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM leaderboard.submission s WHERE s.id = hold_attempt.submission_id FOR NO KEY UPDATE;
    PERFORM runner.hold_batch(hold_attempt.job_id);
    SELECT j.* INTO job FROM runner.job j WHERE j.id = hold_attempt.job_id FOR NO KEY UPDATE;
    held := coalesce(job.state = 'running' AND job.attempt = hold_attempt.attempt, false)
        AND job.submission_id IS NOT DISTINCT FROM hold_attempt.submission_id AND runner.acts_for(job.lease_owner);
END
$$;
