-- Commits results, each if its attempt is still the claimer's. Returns one row per result, in the order given. The
-- outcomes are:
--   committed  the result is stored.
--   repeated   the result was stored before and the answer was lost: only the holder of an attempt can end it with a
--              verdict.
--   stale      the attempt was over, or is not the caller's. The row says what became of the job; the result is kept as
--              evidence.
--   busy       another transaction holds the submission or the batch, or the result was given twice. The caller gives
--              it again.
-- A group of a batch brings `items`, one result each. Those that are our fault go back to the queue with their group,
-- after a pause, as in runner.fail. The first result says for all of them whether the call `waits` for such locks. A
-- release that does not say so waits for a single result only. A call that does not wait gives up after a second where
-- another lock is held.
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
    v_batch_ids bigint[];
    v_validated integer[];
    v_again bigint[] := '{}';
    v_group record;
    v_outcomes text[];
    v_states text[];
    v_attempts integer[];
    v_keys text[];
    v_unfit boolean;
    v_committed bigint[];
    v_committed_for integer[];
    v_concerned integer[];
    v_done integer[];
BEGIN
    IF pg_column_size(complete.results) > 33554432 THEN
        PERFORM runner.refuse('KR028', format('results of %s bytes, expected 32 MiB at most',
            pg_column_size(complete.results)), 'Commit fewer at once, or a shorter one.');
    END IF;
    -- Few statements for the usual case: starting one costs more than what it does for a few results.
    SELECT array_agg(r.job_id), array_agg(r.submission_id), array_agg(r.job_id || '.' || r.attempt),
           bool_or(EXISTS (SELECT FROM jsonb_to_recordset(r.runs) AS x (score_s numeric)
                           WHERE x.score_s <= 0 OR x.score_s::text IN ('NaN', 'Infinity')))
    INTO v_job_ids, v_submission_ids_given, v_keys, v_unfit
    FROM jsonb_to_recordset(complete.results) AS r (job_id bigint, attempt integer, submission_id integer, runs jsonb);
    IF v_unfit THEN
        PERFORM runner.refuse('KR028', 'a score is not above 0, or not finite', 'Correct the result.');
    END IF;
    v_submission_ids := v_submission_ids_given;
    -- Groups have a batch in the place of a submission. What a validation validates must not be deleted meanwhile.
    IF array_position(v_submission_ids_given, NULL) IS NOT NULL THEN
        SELECT array_agg(DISTINCT j.batch_id) FILTER (WHERE j.batch_id IS NOT NULL),
               array_agg(DISTINCT j.validates) FILTER (WHERE j.validates IS NOT NULL)
        INTO v_batch_ids, v_validated
        FROM unnest(v_job_ids, v_submission_ids_given) AS g (id, submission_id)
        CROSS JOIN LATERAL (SELECT o.batch_id, o.validates FROM runner.job o WHERE o.id = g.id OFFSET 0) AS j
        WHERE g.submission_id IS NULL;
    END IF;

    -- Without these locks a public and a secret job that end together would each see the other running, and neither
    -- would finish the submission.
    IF v_waits THEN
        PERFORM FROM (SELECT DISTINCT g.id FROM unnest(v_submission_ids) AS g (id) ORDER BY g.id) AS u
        CROSS JOIN LATERAL (SELECT s.id FROM leaderboard.submission s WHERE s.id = u.id FOR NO KEY UPDATE) AS s;
        IF v_validated IS NOT NULL THEN
            PERFORM FROM (SELECT g.id FROM unnest(v_validated) AS g (id) ORDER BY g.id) AS u
            CROSS JOIN LATERAL (SELECT s.id FROM leaderboard.submission s WHERE s.id = u.id FOR KEY SHARE) AS s;
        END IF;
        IF v_batch_ids IS NOT NULL THEN
            PERFORM FROM (SELECT g.id FROM unnest(v_batch_ids) AS g (id) ORDER BY g.id) AS u
            CROSS JOIN LATERAL (SELECT b.id FROM runner.batch b WHERE b.id = u.id FOR NO KEY UPDATE) AS b;
        END IF;
    ELSE
        PERFORM set_config('lock_timeout', '1s', true);
        SELECT array_agg(u.id) INTO v_submission_ids
        FROM (SELECT DISTINCT g.id FROM unnest(v_submission_ids) AS g (id) ORDER BY g.id) AS u
        LEFT JOIN LATERAL (SELECT s.id FROM leaderboard.submission s WHERE s.id = u.id
                           FOR NO KEY UPDATE SKIP LOCKED) AS s ON true
        -- A submission that was deleted is held by no transaction.
        WHERE s.id IS NOT NULL OR NOT EXISTS (SELECT FROM leaderboard.submission o WHERE o.id = u.id);
        IF v_validated IS NOT NULL THEN
            SELECT array_agg(s.id) INTO v_validated
            FROM (SELECT g.id FROM unnest(v_validated) AS g (id) ORDER BY g.id) AS u
            CROSS JOIN LATERAL (SELECT s.id FROM leaderboard.submission s WHERE s.id = u.id
                                FOR KEY SHARE SKIP LOCKED) AS s;
        END IF;
        IF v_batch_ids IS NOT NULL THEN
            SELECT array_agg(b.id) INTO v_batch_ids
            FROM (SELECT g.id FROM unnest(v_batch_ids) AS g (id) ORDER BY g.id) AS u
            CROSS JOIN LATERAL (SELECT b.id FROM runner.batch b WHERE b.id = u.id FOR NO KEY UPDATE SKIP LOCKED) AS b;
        END IF;
    END IF;

    WITH locked AS MATERIALIZED (
        SELECT j.id, j.state, j.attempt, j.verdict, j.started_at, j.submission_id, j.lease_owner
        FROM (SELECT DISTINCT g.id FROM unnest(v_job_ids, v_submission_ids_given) AS g (id, submission_id)
              WHERE g.submission_id = ANY (v_submission_ids)
                 OR g.submission_id IS NULL
                    AND ((SELECT o.batch_id FROM runner.job o WHERE o.id = g.id) = ANY (v_batch_ids)
                         OR (SELECT o.validates FROM runner.job o WHERE o.id = g.id) = ANY (v_validated))
              ORDER BY g.id) AS u
        CROSS JOIN LATERAL (SELECT * FROM runner.job j WHERE j.id = u.id FOR NO KEY UPDATE) AS j
    ), owners AS MATERIALIZED (
        SELECT o.lease_owner, runner.acts_for(o.lease_owner) AS ours FROM (SELECT DISTINCT lease_owner FROM locked) AS o
    ), answered AS (
        SELECT r.number, r.job_id, r.submission_id, j.state, j.attempt,
               CASE
                   WHEN NOT r.submission_id = ANY (coalesce(v_submission_ids, '{}')) THEN 'busy'
                   -- A job that was deleted is held by no transaction.
                   WHEN r.submission_id IS NULL AND j.id IS NULL
                        AND EXISTS (SELECT FROM runner.job o
                                    WHERE o.id = r.job_id AND num_nonnulls(o.batch_id, o.validates) = 1) THEN 'busy'
                   WHEN r.number <> array_position(v_keys, r.job_id || '.' || r.attempt) THEN 'busy'
                   -- The time of the claim counts too: after a crash, a restored backup, or on another database,
                   -- another claim may have the same job and attempt.
                   WHEN j.started_at <> r.started_at THEN 'stale'
                   WHEN j.submission_id IS DISTINCT FROM r.submission_id THEN 'stale'
                   WHEN j.state = 'running' AND j.attempt = r.attempt AND w.ours THEN 'committed'
                   WHEN j.state = 'done' AND j.attempt = r.attempt AND j.verdict = r.verdict THEN 'repeated'
                   ELSE 'stale'
               END AS outcome
        FROM ROWS FROM (jsonb_to_recordset(complete.results) AS (
            job_id bigint, attempt integer, submission_id integer, verdict text, started_at timestamptz
        )) WITH ORDINALITY AS r (job_id, attempt, submission_id, verdict, started_at, number)
        LEFT JOIN locked j ON j.id = r.job_id
        LEFT JOIN owners w ON w.lease_owner = j.lease_owner
    )
    SELECT array_agg(a.outcome ORDER BY a.number), array_agg(a.state ORDER BY a.number),
           array_agg(a.attempt ORDER BY a.number), array_agg(a.job_id) FILTER (WHERE a.outcome = 'committed'),
           array_agg(CASE a.outcome WHEN 'committed' THEN a.submission_id END ORDER BY a.number),
           array_agg(DISTINCT a.submission_id) FILTER (WHERE a.outcome = 'committed' AND a.submission_id IS NOT NULL)
    INTO v_outcomes, v_states, v_attempts, v_committed, v_committed_for, v_concerned FROM answered a;

    IF v_committed IS NOT NULL THEN
        IF v_batch_ids IS NOT NULL THEN
            v_again := runner.keep_items(v_committed, complete.results);
            FOR v_group IN
                SELECT r.job_id, r.error, r.report, r.slot
                FROM jsonb_to_recordset(complete.results) AS r (
                    job_id bigint, error text, report jsonb, slot text)
                WHERE r.job_id = ANY (v_again) ORDER BY r.job_id
            LOOP
                PERFORM runner.end_failed(v_group.job_id, v_group.slot, v_group.error, v_group.report);
            END LOOP;
        END IF;
        -- The rows are locked, so they are still as found above.
        UPDATE runner.job j
        SET state = 'done', verdict = r.verdict, error = r.error, report = r.report, build_ms = r.build_ms,
            eval_ms = r.eval_ms, finished_at = now(), lease_owner = NULL, lease_expires_at = NULL, progress = NULL
        FROM ROWS FROM (jsonb_to_recordset(complete.results) AS (
            job_id bigint, verdict text, error text, report jsonb, build_ms bigint, eval_ms bigint
        )) WITH ORDINALITY AS r (job_id, verdict, error, report, build_ms, eval_ms, number)
        WHERE j.id = r.job_id AND v_outcomes[r.number] = 'committed' AND j.id = ANY (v_committed)
          AND NOT j.id = ANY (v_again);

        WITH found AS MATERIALIZED (
            SELECT row_number() OVER (ORDER BY r.number, x.number) AS number, j.id AS job_id, j.submission_id,
                   j.started_at, j.secret, j.gpu_type, x.mode, x.start_us, x.end_us, x.passed,
                   x.compilation, x.meta, x.result, CASE WHEN k.ranks THEN d.score ELSE x.score_s END AS score_s,
                   CASE WHEN k.ranks THEN d.system_info ELSE x.system_info END AS system_info
            FROM ROWS FROM (jsonb_to_recordset(complete.results) AS (job_id bigint, runs jsonb))
                WITH ORDINALITY AS r (job_id, runs, number)
            CROSS JOIN LATERAL (SELECT * FROM runner.job j WHERE j.id = r.job_id OFFSET 0) AS j
            CROSS JOIN ROWS FROM (jsonb_to_recordset(r.runs) AS (
                mode text, start_us bigint, end_us bigint, score_s numeric, passed boolean, compilation jsonb,
                meta jsonb, result jsonb, system_info jsonb
            )) WITH ORDINALITY AS x (mode, start_us, end_us, score_s, passed, compilation, meta, result, system_info,
                                     number)
            -- The demand may be another than when the job was claimed.
            CROSS JOIN LATERAL (SELECT NOT j.secret AND x.mode = 'leaderboard' AS ranks) AS k
            LEFT JOIN LATERAL (
                SELECT o.* FROM runner.as_demanded((
                    SELECT b.ranked FROM runner.board b WHERE b.leaderboard_id = (
                        SELECT s.leaderboard_id FROM leaderboard.submission s WHERE s.id = j.submission_id)),
                    x.score_s, x.system_info) AS o
                WHERE k.ranks
            ) AS d ON true
            WHERE v_outcomes[r.number] = 'committed'
        ), written AS (
            INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed,
                                          compilation, meta, result, system_info)
            SELECT f.submission_id, f.started_at + f.start_us * interval '1 microsecond',
                   f.started_at + f.end_us * interval '1 microsecond', f.mode, f.secret, f.gpu_type, f.score_s,
                   f.passed, f.compilation, f.meta, f.result, f.system_info
            FROM found f ORDER BY f.number
            RETURNING id
        ), numbered AS MATERIALIZED (
            -- Rows get their ids in the order in which they are inserted.
            SELECT w.id AS run_id, f.job_id, f.submission_id, f.gpu_type, f.score_s, NOT f.secret AND f.passed AS counts
            FROM (SELECT id, row_number() OVER (ORDER BY id) AS number FROM written) AS w
            JOIN found f ON f.number = w.number
        ), linked AS (
            INSERT INTO runner.job_run (run_id, job_id) SELECT n.run_id, n.job_id FROM numbered n
        ), signed AS (
            INSERT INTO runner.receipt AS c (job_id, statement, key, signature)
            SELECT r.job_id, r.receipt ->> 'statement', r.receipt ->> 'key', r.receipt ->> 'signature'
            FROM ROWS FROM (jsonb_to_recordset(complete.results) AS (job_id bigint, receipt jsonb))
                WITH ORDINALITY AS r (job_id, receipt, number)
            WHERE v_outcomes[r.number] = 'committed' AND r.receipt IS NOT NULL
            -- Of a job that an administrator put back into the queue by hand.
            ON CONFLICT (job_id) DO UPDATE
            SET statement = EXCLUDED.statement, key = EXCLUDED.key, signature = EXCLUDED.signature
        )
        INSERT INTO runner.score (run_id, leaderboard_id, gpu_type, user_id, score, submission_time, submission_id)
        SELECT n.run_id, s.leaderboard_id, n.gpu_type, s.user_id, n.score_s, s.submission_time, s.id
        FROM numbered n
        CROSS JOIN LATERAL (SELECT * FROM leaderboard.submission o WHERE o.id = n.submission_id OFFSET 0) AS s
        WHERE n.counts AND n.score_s IS NOT NULL;

        IF v_concerned IS NOT NULL THEN
            v_done := runner.after_attempts(v_concerned);
        END IF;
        IF v_validated IS NOT NULL THEN
            PERFORM runner.end_validations(v_committed);
            PERFORM runner.end_finals(v_committed);
        END IF;
    END IF;

    IF 'stale' = ANY (v_outcomes) THEN
        WITH late AS MATERIALIZED (
            SELECT r.*, v_states[r.number] AS state_now, v_attempts[r.number] AS attempt_now
            FROM ROWS FROM (jsonb_to_recordset(complete.results) AS (
                job_id bigint, attempt integer, submission_id integer, verdict text, error text, report jsonb,
                runs jsonb
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
            'verdict', l.verdict, 'state_now', l.state_now, 'attempt_now', l.attempt_now, 'login', session_user)
        FROM late l JOIN runner.job j ON j.id = l.job_id ORDER BY l.number;
    END IF;

    RETURN QUERY
    SELECT o.outcome,
           CASE o.outcome
               -- Of several jobs that end their submission together, the last one does.
               WHEN 'committed' THEN coalesce(o.submission_id = ANY (v_done), false)
                   AND (o.submission_id = ANY (v_committed_for[o.number::integer + 1 :])) IS NOT TRUE
               WHEN 'repeated' THEN coalesce((SELECT s.done FROM leaderboard.submission s
                                              WHERE s.id = o.submission_id), false)
               ELSE false
           END,
           o.state, o.attempt
    FROM unnest(v_outcomes, v_states, v_attempts, v_submission_ids_given) WITH ORDINALITY
        AS o (outcome, state, attempt, submission_id, number)
    ORDER BY o.number;
END
$$;
