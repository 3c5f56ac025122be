-- Cancels the jobs that wait, asks those that run to stop, and returns how many jobs that were. If jobs run, it
-- notifies their daemons, which tell frontends when the jobs have stopped. If no job runs, it tells frontends itself.
-- With a user id it acts for that user, who cannot cancel what an operator ordered.
CREATE OR REPLACE FUNCTION runner.cancel(submission_id bigint, user_id text DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id integer;
    v_queued integer;
    v_running integer;
    v_hosts text;
    v_done boolean := false;
BEGIN
    PERFORM runner.check_isolation();
    SELECT s.id INTO v_id FROM leaderboard.submission s
    WHERE s.id = cancel.submission_id AND s.user_id = coalesce(cancel.user_id, s.user_id)
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR015', format('submission %s does not exist', cancel.submission_id)
            || CASE WHEN cancel.user_id IS NULL THEN '' ELSE format(' or is not of user %L', cancel.user_id) END,
            'Look at the list of your submissions.');
    END IF;
    WITH asked AS (
        SELECT j.id FROM runner.job j
        WHERE j.submission_id = v_id AND j.state IN ('queued', 'running') AND NOT j.cancel_requested
          AND (cancel.user_id IS NULL OR j.replaces IS NULL)
        ORDER BY j.id FOR NO KEY UPDATE
    ), changed AS (
        UPDATE runner.job j
        SET cancel_requested = true,
            state = CASE j.state WHEN 'queued' THEN 'cancelled' ELSE j.state END,
            finished_at = CASE j.state WHEN 'queued' THEN now() END, expires_at = NULL
        FROM asked WHERE j.id = asked.id
        RETURNING j.state, j.lease_owner
    )
    SELECT count(*) FILTER (WHERE c.state = 'cancelled'), count(*) FILTER (WHERE c.state = 'running'),
           string_agg(DISTINCT c.lease_owner, ',')
    INTO v_queued, v_running, v_hosts FROM changed c;

    IF v_queued > 0 THEN
        v_done := runner.settle(v_id);
    END IF;
    IF v_running > 0 THEN
        PERFORM runner.call('runner_hosts', v_hosts);
    ELSIF v_queued > 0 THEN
        PERFORM runner.tell('runner_events', json_build_object(
            'event', 'cancel', 'submission_id', v_id, 'cancelled', v_queued, 'submission_done', v_done)::text);
    END IF;
    RETURN v_queued + v_running;
END
$$;
