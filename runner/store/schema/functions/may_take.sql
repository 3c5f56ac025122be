-- True if a host may take a job that is ready: it is for any host or this one, its pause is over, and it need not go
-- elsewhere after a failure there. In the form that PostgreSQL parses once and inlines, so it costs a claim nothing,
-- and has no search_path to pin.
CREATE OR REPLACE FUNCTION runner.may_take(job runner.job, host text) RETURNS boolean
LANGUAGE sql STABLE
RETURN (job.only_host IS NULL OR job.only_host = host)
    AND (job.not_before IS NULL OR job.not_before <= now())
    AND (job.avoid_until IS NULL OR job.avoid_until <= now() OR job.avoid_host <> host OR job.avoid_slot IS NOT NULL);
