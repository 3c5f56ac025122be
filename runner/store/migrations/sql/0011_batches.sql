-- A batch of results costs a few statements, not a few for each submission: the final words of all of them are written
-- together.

-- Retires what finished reruns replace, then writes the final words of those of these submissions of which no job is left
-- open: job status, then done. Returns those: they are finished. The caller holds the submissions' rows: of two jobs that
-- end together, the second one sees the first.
CREATE FUNCTION runner.settle_all(submission_ids integer[]) RETURNS integer[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_id integer;
    v_rerun integer[];
    v_over integer[];
    v_words text[];
    v_errors text[];
    v_before text[];
    v_hacked integer[];
    v_ours integer[] := '{}';
BEGIN
    -- Aggregates, because no index but the submission's is a way to them: a plan that was made when nothing was queued
    -- or replaced would walk the indexes of what is, and be kept when there are thousands.
    SELECT array_agg(o.id ORDER BY o.id) FILTER (WHERE o.rerun), array_agg(o.id) FILTER (WHERE NOT coalesce(o.open, false))
    INTO v_rerun, v_over
    FROM (
        SELECT u.id, n.open, n.rerun
        FROM unnest(settle_all.submission_ids) AS u (id)
        CROSS JOIN LATERAL (
            SELECT bool_or(j.state IN ('queued', 'running')) AS open,
                   bool_or(j.state IN ('done', 'cancelled') AND j.replaces IS NOT NULL AND j.retired_at IS NULL) AS rerun
            FROM runner.job j WHERE j.submission_id = u.id
        ) AS n
    ) AS o;
    FOREACH v_id IN ARRAY coalesce(v_rerun, '{}') LOOP
        PERFORM runner.replace_jobs(v_id);
    END LOOP;
    IF v_over IS NULL THEN
        RETURN NULL;
    END IF;

    -- The gravest word of all jobs. A non-ranked job that has rows succeeded, whatever they say: clients read them.
    SELECT array_agg(f.id ORDER BY f.id), array_agg(f.status ORDER BY f.id), array_agg(f.error ORDER BY f.id),
           array_agg(f.before ORDER BY f.id)
    INTO v_over, v_words, v_errors, v_before
    FROM (
        SELECT u.id, g.status, g.error, s.status AS before
        FROM unnest(v_over) AS u (id)
        CROSS JOIN LATERAL (SELECT o.status FROM leaderboard.submission o WHERE o.id = u.id OFFSET 0) AS s
        LEFT JOIN LATERAL (
            SELECT w.status, w.error
            FROM (
                SELECT j.id, j.secret, j.retired_at,
                       CASE
                           WHEN j.retired_at IS NOT NULL THEN 'failed'
                           WHEN j.verdict = 'rejected' THEN 'hacked'
                           WHEN j.state = 'cancelled' THEN 'failed'
                           WHEN j.verdict IN ('internal_error', 'invalid') THEN 'failed'
                           WHEN j.mode = 'leaderboard' AND j.verdict <> 'accepted' THEN 'failed'
                           WHEN j.mode = 'leaderboard' AND NOT n.passed THEN 'failed'
                           WHEN n.rows > 0 THEN 'succeeded'
                           WHEN j.verdict = 'time_limit' THEN 'timed_out'
                           WHEN j.verdict = 'accepted' THEN 'succeeded'
                           ELSE 'failed'
                       END AS status,
                       CASE
                           WHEN j.retired_at IS NOT NULL THEN j.retired_reason
                           WHEN j.state = 'cancelled' THEN 'cancelled'
                           WHEN j.verdict = 'rejected' AND NOT j.secret THEN coalesce(j.error, 'rejected')
                           WHEN j.verdict = 'rejected' THEN format('rejected by the secret run on %s', j.gpu_type)
                           WHEN j.verdict = 'internal_error'
                               THEN format('the evaluation on %s failed for a reason that is not yours', j.gpu_type)
                           WHEN j.verdict = 'invalid' AND NOT j.secret THEN coalesce(j.error, 'invalid')
                           WHEN j.mode = 'leaderboard' THEN format(
                               '%s validation failed on %s; submission will not appear on the leaderboard',
                               CASE WHEN j.secret THEN 'secret' ELSE 'ranked' END, j.gpu_type)
                           WHEN j.secret THEN format('the secret run on %s ended without a result', j.gpu_type)
                           ELSE coalesce(j.error, 'the evaluation ended without a result')
                       END AS error
                FROM runner.job j
                -- Neither EXISTS nor a join: planned when there were few results, they would read all, and go on to when
                -- there are many.
                CROSS JOIN LATERAL (
                    SELECT count(*) AS rows,
                           bool_and((SELECT r.passed FROM leaderboard.runs r WHERE r.id = x.run_id)) AS passed
                    FROM runner.job_run x WHERE x.job_id = j.id
                ) AS n
                WHERE j.submission_id = u.id AND (j.retired_at IS NULL OR j.retired_as = 'invalidated')
            ) AS w
            ORDER BY array_position(ARRAY['hacked', 'failed', 'timed_out', 'succeeded'], w.status), w.retired_at IS NULL,
                     w.secret, w.id
            LIMIT 1
        ) AS g ON true
    ) AS f;

    INSERT INTO leaderboard.submission_job_status AS t (submission_id, status, error, last_heartbeat)
    SELECT w.id, w.word, CASE WHEN w.word <> 'succeeded' THEN w.error END, now()
    FROM unnest(v_over, v_words, v_errors) AS w (id, word, error) ORDER BY w.id
    ON CONFLICT (submission_id) DO UPDATE
    SET status = EXCLUDED.status, error = EXCLUDED.error, last_heartbeat = EXCLUDED.last_heartbeat;

    IF 'hacked' = ANY (v_words) OR 'hacked' = ANY (v_before) THEN
        -- Whose mark it is, is remembered: a later verdict takes back ours, never somebody else's.
        SELECT array_agg(w.id), array_agg(w.id) FILTER (WHERE w.before <> 'hacked' OR n.marked) INTO v_hacked, v_ours
        FROM unnest(v_over, v_words, v_before) AS w (id, word, before)
        CROSS JOIN LATERAL (SELECT bool_or(j.marked_hacked) AS marked FROM runner.job j WHERE j.submission_id = w.id) AS n
        WHERE w.word = 'hacked' OR w.before = 'hacked';
        v_ours := coalesce(v_ours, '{}');
        UPDATE runner.job j
        SET marked_hacked = j.submission_id = ANY (v_ours) AND j.verdict = 'rejected' AND j.retired_at IS NULL
        WHERE j.submission_id = ANY (v_hacked) AND (j.marked_hacked OR j.verdict = 'rejected');
    END IF;
    UPDATE leaderboard.submission s
    SET done = true,
        status = CASE WHEN w.word = 'hacked' THEN 'hacked' WHEN w.id = ANY (v_ours) THEN 'active' ELSE s.status END
    FROM unnest(v_over, v_words) AS w (id, word)
    WHERE s.id = w.id AND s.id = ANY (v_over);
    RETURN v_over;
END
$$;

-- The same for one submission. True: it is finished.
CREATE OR REPLACE FUNCTION runner.settle(submission_id integer) RETURNS boolean
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT coalesce(settle.submission_id = ANY (runner.settle_all(ARRAY[settle.submission_id])), false) $$;

-- What follows when jobs of these submissions have ended: as after_attempt, for all of them together. Returns those that
-- are finished.
CREATE FUNCTION runner.after_attempts(submission_ids integer[]) RETURNS integer[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_done integer[] := coalesce(runner.settle_all(after_attempts.submission_ids), '{}');
    v_waiting integer[];
BEGIN
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

-- Commits what attempts found, each if it is still the claimer's; one row of answer per result, in the order given.
-- Outcomes: `committed`; `repeated`, because only the holder of an attempt can end it with a verdict, so that an answer was
-- lost; `stale`, with what has become of the job, and the result kept as evidence; `busy`, when somebody holds its
-- submission, or it was given twice: the caller gives it again. The first result says for all whether it `waits` for that
-- instead; a release that does not say so waits for one result alone. Who does not wait gives up after a second where
-- something else is held.
CREATE OR REPLACE FUNCTION runner.complete(results jsonb)
RETURNS TABLE (outcome text, submission_done boolean, state_now text, attempt_now integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_waits boolean := coalesce((complete.results -> 0 ->> 'waits')::boolean, jsonb_array_length(complete.results) = 1);
    v_job_ids bigint[];
    v_submission_ids_given integer[];
    v_submission_ids integer[];
    v_outcomes text[];
    v_states text[];
    v_attempts integer[];
    v_committed bigint[];
    v_concerned integer[];
    v_done integer[];
BEGIN
    SELECT array_agg(r.job_id), array_agg(r.submission_id) INTO v_job_ids, v_submission_ids_given
    FROM jsonb_to_recordset(complete.results) AS r (job_id bigint, submission_id integer);
    v_submission_ids := v_submission_ids_given;

    -- Without these locks two twins that end together would each see the other running, and nobody would finish.
    IF v_waits THEN
        PERFORM FROM (SELECT DISTINCT g.id FROM unnest(v_submission_ids) AS g (id) ORDER BY g.id) AS u
        CROSS JOIN LATERAL (SELECT s.id FROM leaderboard.submission s WHERE s.id = u.id FOR NO KEY UPDATE) AS s;
    ELSE
        PERFORM set_config('lock_timeout', '1s', true);
        SELECT array_agg(u.id) INTO v_submission_ids
        FROM (SELECT DISTINCT g.id FROM unnest(v_submission_ids) AS g (id) ORDER BY g.id) AS u
        LEFT JOIN LATERAL (SELECT s.id FROM leaderboard.submission s WHERE s.id = u.id
                           FOR NO KEY UPDATE SKIP LOCKED) AS s ON true
        -- One that is gone is held by nobody.
        WHERE s.id IS NOT NULL OR NOT EXISTS (SELECT FROM leaderboard.submission o WHERE o.id = u.id);
    END IF;

    WITH locked AS MATERIALIZED (
        SELECT j.id, j.state, j.attempt, j.verdict, j.started_at
        FROM (SELECT DISTINCT g.id FROM unnest(v_job_ids, v_submission_ids_given) AS g (id, submission_id)
              WHERE g.submission_id = ANY (v_submission_ids) ORDER BY g.id) AS u
        CROSS JOIN LATERAL (SELECT * FROM runner.job j WHERE j.id = u.id FOR NO KEY UPDATE) AS j
    ), answered AS (
        SELECT r.number, r.job_id, r.submission_id, j.state, j.attempt,
               CASE
                   WHEN NOT r.submission_id = ANY (coalesce(v_submission_ids, '{}')) THEN 'busy'
                   WHEN r.number <> min(r.number) OVER (PARTITION BY r.job_id, r.attempt) THEN 'busy'
                   -- The moment of the claim as well: after a restored backup, or before another database, job and
                   -- attempt may be those of somebody else's claim.
                   WHEN j.started_at <> r.started_at THEN 'stale'
                   WHEN j.state = 'running' AND j.attempt = r.attempt THEN 'committed'
                   WHEN j.state = 'done' AND j.attempt = r.attempt AND j.verdict = r.verdict THEN 'repeated'
                   ELSE 'stale'
               END AS outcome
        FROM ROWS FROM (jsonb_to_recordset(complete.results) AS (
            job_id bigint, attempt integer, submission_id integer, verdict text, started_at timestamptz
        )) WITH ORDINALITY AS r (job_id, attempt, submission_id, verdict, started_at, number)
        LEFT JOIN locked j ON j.id = r.job_id
    )
    SELECT array_agg(a.outcome ORDER BY a.number), array_agg(a.state ORDER BY a.number),
           array_agg(a.attempt ORDER BY a.number), array_agg(a.job_id) FILTER (WHERE a.outcome = 'committed'),
           array_agg(DISTINCT a.submission_id) FILTER (WHERE a.outcome = 'committed')
    INTO v_outcomes, v_states, v_attempts, v_committed, v_concerned FROM answered a;

    IF v_committed IS NOT NULL THEN
        -- The row is locked, so it is still as found above.
        UPDATE runner.job j
        SET state = 'done', verdict = r.verdict, error = r.error, report = r.report, build_ms = r.build_ms,
            eval_ms = r.eval_ms, finished_at = now(), lease_owner = NULL, lease_expires_at = NULL, progress = NULL
        FROM ROWS FROM (jsonb_to_recordset(complete.results) AS (
            job_id bigint, verdict text, error text, report jsonb, build_ms bigint, eval_ms bigint
        )) WITH ORDINALITY AS r (job_id, verdict, error, report, build_ms, eval_ms, number)
        WHERE j.id = r.job_id AND v_outcomes[r.number] = 'committed' AND j.id = ANY (v_committed);

        WITH found AS MATERIALIZED (
            SELECT row_number() OVER (ORDER BY r.number, x.number) AS number, j.id AS job_id, j.submission_id,
                   j.started_at, j.secret, j.gpu_type, x.mode, x.start_us, x.end_us, x.score_s, x.passed,
                   x.compilation, x.meta, x.result, x.system_info
            FROM ROWS FROM (jsonb_to_recordset(complete.results) AS (job_id bigint, runs jsonb))
                WITH ORDINALITY AS r (job_id, runs, number)
            CROSS JOIN LATERAL (SELECT * FROM runner.job j WHERE j.id = r.job_id OFFSET 0) AS j
            CROSS JOIN ROWS FROM (jsonb_to_recordset(r.runs) AS (
                mode text, start_us bigint, end_us bigint, score_s numeric, passed boolean, compilation jsonb,
                meta jsonb, result jsonb, system_info jsonb
            )) WITH ORDINALITY AS x (mode, start_us, end_us, score_s, passed, compilation, meta, result, system_info,
                                     number)
            WHERE v_outcomes[r.number] = 'committed'
        ), written AS (
            INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed,
                                          compilation, meta, result, system_info)
            SELECT f.submission_id, f.started_at + f.start_us * interval '1 microsecond',
                   f.started_at + f.end_us * interval '1 microsecond', f.mode, f.secret, f.gpu_type, f.score_s,
                   f.passed, f.compilation, f.meta, f.result, f.system_info
            FROM found f ORDER BY f.number
            RETURNING id
        )
        -- Rows get their ids in the order in which they are inserted.
        INSERT INTO runner.job_run (run_id, job_id)
        SELECT w.id, f.job_id
        FROM (SELECT id, row_number() OVER (ORDER BY id) AS number FROM written) AS w
        JOIN found f ON f.number = w.number;

        v_done := runner.after_attempts(v_concerned);
    END IF;

    IF 'stale' = ANY (v_outcomes) THEN
        WITH late AS MATERIALIZED (
            SELECT r.*, v_states[r.number] AS state_now, v_attempts[r.number] AS attempt_now
            FROM ROWS FROM (jsonb_to_recordset(complete.results) AS (
                job_id bigint, attempt integer, submission_id integer, verdict text, error text, report jsonb, runs jsonb
            )) WITH ORDINALITY AS r (job_id, attempt, submission_id, verdict, error, report, runs, number)
            WHERE v_outcomes[r.number] = 'stale' AND v_states[r.number] IS NOT NULL
        ), kept AS (
            INSERT INTO runner.stale_result (job_id, attempt, verdict, result)
            SELECT l.job_id, l.attempt, l.verdict, jsonb_build_object(
                'error', l.error, 'report', l.report,
                'runs', (SELECT coalesce(jsonb_agg(x.run - 'compilation' ORDER BY x.number), '[]')
                         FROM jsonb_array_elements(l.runs) WITH ORDINALITY AS x (run, number)))
            FROM late l ORDER BY l.number
        )
        INSERT INTO runner.event (kind, submission_id, job_id, attempt, detail)
        SELECT 'stale', j.submission_id, l.job_id, l.attempt, jsonb_build_object(
            'verdict', l.verdict, 'state_now', l.state_now, 'attempt_now', l.attempt_now)
        FROM late l JOIN runner.job j ON j.id = l.job_id ORDER BY l.number;
    END IF;

    RETURN QUERY
    SELECT o.outcome,
           CASE o.outcome
               -- Of several jobs that end their submission together, the last one does.
               WHEN 'committed' THEN r.submission_id = ANY (coalesce(v_done, '{}')) AND r.number = max(r.number)
                   FILTER (WHERE o.outcome = 'committed') OVER (PARTITION BY r.submission_id)
               WHEN 'repeated' THEN (SELECT coalesce(s.done, false) FROM leaderboard.submission s
                                     WHERE s.id = r.submission_id)
               ELSE false
           END,
           o.state, o.attempt
    FROM ROWS FROM (jsonb_to_recordset(complete.results) AS (submission_id integer))
        WITH ORDINALITY AS r (submission_id, number)
    JOIN unnest(v_outcomes, v_states, v_attempts) WITH ORDINALITY AS o (outcome, state, attempt, number)
        ON o.number = r.number
    ORDER BY r.number;
END
$$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA runner FROM PUBLIC;
