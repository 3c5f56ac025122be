-- A host's name belongs to one daemon at a time, and every call in it says whose it is. What is given back is told as what is
-- reclaimed. A batch may hold a result twice. Authors cancel what they ordered. Results are found by way of their jobs.

-- What took over a name (another daemon, after a minute of silence) owns what runs in it. The one that was silent learns it
-- from its next claim or heartbeat, however it came to be silent: it need not have met an error.
DROP FUNCTION runner.claim(text, text[], integer[], double precision, integer);
DROP FUNCTION runner.heartbeat(text, double precision, bigint[], integer[]);
DROP FUNCTION runner.recover(text, bigint[], integer[], integer);

-- Takes the best queued jobs of one GPU type, at most as many as there are free slots for it, and says how the host
-- stands, and every ten seconds how many hosts, it included, serve the same GPU types. Always returns a row; without a
-- job its id is NULL. Types are tried by the priority of their best job, then in the order in which the host names them:
-- the one that it served least recently first, because types that share slots (one within the other, or two names of one)
-- take turns as users do. Each is walked along job_claim_idx, so that only rows that are taken are locked. The planner has
-- no choice: a plan made while the queue was short would be kept when it is long.
--
-- Within a class the lowest turn is first, so a newcomer, who starts at the clock's turn, is ahead of all further jobs of
-- those who were there. An endless stream of newcomers would starve them. So newcomers are served in rounds: those who
-- are there when one begins. Before every round but the first in a turn, one job of the others is taken.
CREATE FUNCTION runner.claim(
    host text, gpu_types text[], free integer[], lease_s double precision, at_most integer DEFAULT NULL,
    instance text DEFAULT NULL
) RETURNS TABLE (
    draining boolean, drain_reason text, registered boolean, overdue boolean, rivals integer,
    id bigint, attempt integer, submission_id integer, leaderboard text, gpu_type text, mode text, secret boolean,
    user_id text, file_name text, code bytea, task jsonb, extra jsonb, secret_seed bigint, failures integer,
    max_attempts integer, created_at timestamptz, started_at timestamptz, avoid_slot text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_host record;
    v_taken boolean;
    v_type record;
    v_clock record;
    v_class record;
    v_newcomer boolean;
    v_ids bigint[];
    v_submission_ids integer[];
    v_priorities integer[];
    v_turns bigint[];
BEGIN
    SELECT h.draining, h.drain_reason, h.stopped_at IS NULL AS registered, h.gpu_types,
           h.instance, h.last_seen < now() - interval '10 seconds' AS silent
    INTO v_host FROM runner.host h WHERE h.name = claim.host;
    draining := coalesce(v_host.draining, false);
    drain_reason := v_host.drain_reason;
    -- Somebody else goes by the name: it gets nothing, and shows no sign of life in that name.
    v_taken := coalesce(v_host.instance <> claim.instance, false);
    registered := coalesce(v_host.registered, false) AND NOT v_taken;
    overdue := EXISTS (SELECT FROM runner.job j WHERE j.lease_expires_at < now());
    IF v_host.silent AND NOT v_taken THEN
        SELECT count(*) INTO rivals FROM runner.host h
        WHERE h.gpu_types && v_host.gpu_types AND NOT h.draining AND h.stopped_at IS NULL
          AND (h.last_seen > now() - interval '60 seconds' OR h.name = claim.host);
    END IF;

    IF NOT draining AND NOT v_taken THEN
        FOR v_type IN
            SELECT t.gpu_type, t.free, best.priority, best.turn, best.id
            FROM unnest(claim.gpu_types, claim.free) WITH ORDINALITY AS t (gpu_type, free, number)
            CROSS JOIN LATERAL (
                SELECT q.priority, q.turn, q.id
                FROM runner.job q
                WHERE q.state = 'queued' AND q.gpu_type = t.gpu_type
                  AND (q.not_before IS NULL OR q.not_before <= now())
                  AND (q.avoid_until IS NULL OR q.avoid_until <= now() OR q.avoid_host <> claim.host
                       OR q.avoid_slot IS NOT NULL)
                ORDER BY q.priority DESC, q.turn, q.id
                LIMIT 1
            ) AS best
            WHERE t.free > 0
            ORDER BY best.priority DESC, t.number
        LOOP
            SELECT c.turn, c.since_id, c.rounds INTO v_clock FROM runner.clock c
            WHERE c.gpu_type = v_type.gpu_type AND c.priority = v_type.priority;
            v_newcomer := v_type.turn <= v_clock.turn AND v_type.id > v_clock.since_id;
            IF v_newcomer AND v_clock.rounds > 0 THEN
                SELECT array_agg(p.id), array_agg(p.submission_id), NULL, NULL
                INTO v_ids, v_submission_ids, v_priorities, v_turns
                FROM (
                    SELECT q.id, q.submission_id
                    FROM runner.job q
                    WHERE q.state = 'queued' AND q.gpu_type = v_type.gpu_type AND q.priority = v_type.priority
                      AND q.turn > v_clock.turn
                      AND (q.not_before IS NULL OR q.not_before <= now())
                      AND (q.avoid_until IS NULL OR q.avoid_until <= now() OR q.avoid_host <> claim.host
                           OR q.avoid_slot IS NOT NULL)
                    ORDER BY q.priority DESC, q.turn, q.id
                    LIMIT least(1, claim.at_most)
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS p;
                EXIT WHEN v_ids IS NOT NULL;
            END IF;
            SELECT array_agg(p.id), array_agg(p.submission_id), array_agg(p.priority), array_agg(p.turn)
            INTO v_ids, v_submission_ids, v_priorities, v_turns
            FROM (
                SELECT q.id, q.submission_id, q.priority, q.turn
                FROM runner.job q
                WHERE q.state = 'queued' AND q.gpu_type = v_type.gpu_type
                  AND (q.not_before IS NULL OR q.not_before <= now())
                  AND (q.avoid_until IS NULL OR q.avoid_until <= now() OR q.avoid_host <> claim.host
                       OR q.avoid_slot IS NOT NULL)
                ORDER BY q.priority DESC, q.turn, q.id
                LIMIT least(v_type.free, claim.at_most)
                FOR NO KEY UPDATE SKIP LOCKED
            ) AS p;
            EXIT WHEN v_ids IS NOT NULL;
        END LOOP;
    END IF;

    IF v_ids IS NULL THEN
        RETURN NEXT;
    ELSE
        RETURN QUERY
        WITH claimed AS (
            UPDATE runner.job j
            SET state = 'running', attempt = j.attempt + 1, lease_owner = claim.host, host = claim.host,
                lease_expires_at = now() + claim.lease_s * interval '1 second', started_at = now(),
                not_before = NULL, progress = NULL, reserved_by = NULL, reserved_until = NULL
            WHERE j.id = ANY (v_ids)
            RETURNING j.id, j.attempt, j.submission_id, j.gpu_type, j.mode, j.secret, j.failures, j.max_attempts,
                      j.created_at, j.started_at, j.avoid_host, j.avoid_slot, j.priority, j.turn
        )
        SELECT draining, drain_reason, registered, overdue, rivals,
               c.id, c.attempt, c.submission_id, l.name, c.gpu_type, c.mode, c.secret, s.user_id, s.file_name, f.code,
               l.task, b.extra, l.secret_seed, c.failures, c.max_attempts, c.created_at, c.started_at,
               CASE WHEN c.avoid_host = claim.host THEN c.avoid_slot END
        FROM claimed c
        CROSS JOIN LATERAL (SELECT * FROM leaderboard.submission s WHERE s.id = c.submission_id OFFSET 0) AS s
        CROSS JOIN LATERAL (SELECT * FROM leaderboard.code_files f WHERE f.id = s.code_id OFFSET 0) AS f
        CROSS JOIN LATERAL (SELECT * FROM leaderboard.leaderboard l WHERE l.id = s.leaderboard_id OFFSET 0) AS l
        LEFT JOIN LATERAL (SELECT * FROM runner.board b WHERE b.leaderboard_id = l.id OFFSET 0) AS b ON true
        ORDER BY c.priority DESC, c.turn, c.id;

        PERFORM runner.show_running(v_submission_ids);
        IF v_newcomer THEN
            PERFORM runner.advance_clock(v_type.gpu_type, v_type.priority, NULL);
        END IF;
        FOR v_class IN
            SELECT p.priority, max(p.turn) AS turn
            FROM unnest(v_priorities, v_turns) AS p (priority, turn) GROUP BY p.priority ORDER BY p.priority
        LOOP
            IF v_class.priority <> v_type.priority OR v_clock.turn IS NULL OR v_class.turn > v_clock.turn THEN
                PERFORM runner.advance_clock(v_type.gpu_type, v_class.priority, v_class.turn);
            END IF;
        END LOOP;
    END IF;
    IF v_host.silent AND NOT v_taken THEN
        UPDATE runner.host t SET last_seen = now()
        FROM (SELECT h.name FROM runner.host h WHERE h.name = claim.host FOR NO KEY UPDATE SKIP LOCKED) AS free
        WHERE t.name = free.name;
    END IF;
END
$$;

-- Renews the leases that are still the host's and says which are not. A job that somebody is writing right now keeps its
-- lease as it is until the next heartbeat. Whose name somebody else has taken has no leases any more.
CREATE FUNCTION runner.heartbeat(
    host text, lease_s double precision, ids bigint[], attempts integer[], instance text DEFAULT NULL
) RETURNS TABLE (job_id bigint, attempt integer, ours boolean, cancel_requested boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_taken boolean;
    v_submission_ids integer[];
BEGIN
    SELECT h.instance <> heartbeat.instance INTO v_taken FROM runner.host h WHERE h.name = heartbeat.host;
    IF v_taken THEN
        RETURN QUERY
        SELECT h.id, h.attempt, false, false FROM unnest(heartbeat.ids, heartbeat.attempts) AS h (id, attempt)
        ORDER BY h.id;
        RETURN;
    END IF;

    RETURN QUERY
    WITH locked AS MATERIALIZED (
        SELECT h.id
        FROM unnest(heartbeat.ids, heartbeat.attempts) AS h (id, attempt)
        CROSS JOIN LATERAL (
            SELECT j.attempt, j.state, j.lease_owner FROM runner.job j WHERE j.id = h.id FOR NO KEY UPDATE SKIP LOCKED
        ) AS j
        WHERE j.attempt = h.attempt AND j.state = 'running' AND j.lease_owner = heartbeat.host
    ), renewed AS (
        UPDATE runner.job j SET lease_expires_at = now() + heartbeat.lease_s * interval '1 second'
        FROM locked k WHERE j.id = k.id AND j.id = ANY (heartbeat.ids)
    )
    SELECT h.id, h.attempt, coalesce(j.ours, false), coalesce(j.ours AND j.cancel_requested, false)
    FROM unnest(heartbeat.ids, heartbeat.attempts) AS h (id, attempt)
    -- As the statement found it, locked or not: a cancellation is in force once it is committed.
    LEFT JOIN LATERAL (
        SELECT j.attempt = h.attempt AND j.state = 'running' AND j.lease_owner = heartbeat.host AS ours,
               j.cancel_requested
        FROM runner.job j WHERE j.id = h.id OFFSET 0
    ) AS j ON true
    ORDER BY h.id;

    SELECT array_agg(j.submission_id) INTO v_submission_ids FROM runner.job j
    WHERE j.id = ANY (heartbeat.ids) AND j.lease_owner = heartbeat.host;
    PERFORM runner.show_running(v_submission_ids);

    -- A claim does it every ten seconds, unless the daemon's loop stands still.
    UPDATE runner.host t SET last_seen = now()
    FROM (SELECT h.name FROM runner.host h
          WHERE h.name = heartbeat.host AND h.last_seen < now() - interval '15 seconds'
          FOR NO KEY UPDATE SKIP LOCKED) AS free
    WHERE t.name = free.name;
END
$$;

-- Takes back whatever runs in a host's name but the jobs it names; nothing, if the name is somebody else's. Says what became
-- of each, as reclaim does. With `max_reclaims` their process has died, maybe of them, and it counts like a lost lease;
-- without, a claim was not answered, and it costs nothing. What somebody holds right now is left to its lease.
CREATE FUNCTION runner.recover(
    host text, ids bigint[], attempts integer[], max_reclaims integer DEFAULT NULL, instance text DEFAULT NULL
) RETURNS TABLE (job_id bigint, submission_id integer, gpu_type text, secret boolean, state text, submission_done boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
BEGIN
    IF EXISTS (SELECT FROM runner.host h WHERE h.name = recover.host AND h.instance <> recover.instance) THEN
        RETURN;
    END IF;
    FOR v_job IN
        SELECT j.id, j.submission_id, j.attempt, j.gpu_type, j.secret FROM runner.job j
        WHERE j.lease_expires_at IS NOT NULL AND j.lease_owner = recover.host
          AND NOT EXISTS (SELECT FROM unnest(recover.ids, recover.attempts) AS k (id, attempt)
                          WHERE k.id = j.id AND k.attempt = j.attempt)
        ORDER BY j.submission_id, j.id
    LOOP
        PERFORM FROM leaderboard.submission s WHERE s.id = v_job.submission_id FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        IF recover.max_reclaims IS NULL THEN
            SELECT r.state, r.submission_done INTO state, submission_done FROM runner.release(
                v_job.id, v_job.attempt, v_job.submission_id, format('host %s knew nothing of it', recover.host)) AS r;
            CONTINUE WHEN state IS NULL;
        ELSE
            PERFORM FROM runner.job j
            WHERE j.id = v_job.id AND j.attempt = v_job.attempt AND j.lease_owner = recover.host FOR NO KEY UPDATE;
            CONTINUE WHEN NOT FOUND;
            SELECT b.state, b.submission_done INTO state, submission_done FROM runner.take_back(
                v_job.id, format('host %s was started again', recover.host), recover.max_reclaims) AS b;
        END IF;
        job_id := v_job.id;
        submission_id := v_job.submission_id;
        gpu_type := v_job.gpu_type;
        secret := v_job.secret;
        RETURN NEXT;
    END LOOP;
END
$$;

-- ---------------------------------------------------------------------------------------------------------------------
-- Results

-- Commits what attempts found, each if it is still the claimer's; one row of answer per result, in the order given.
-- Outcomes: `committed`; `repeated`, because only the holder of an attempt can end it with a verdict, so that an answer was
-- lost; `stale`, with what has become of the job, and the result kept as evidence; `busy`, for one of several whose
-- submission somebody holds, or that was given twice: the caller gives it again alone, which waits.
CREATE OR REPLACE FUNCTION runner.complete(results jsonb)
RETURNS TABLE (outcome text, submission_done boolean, state_now text, attempt_now integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
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
    IF cardinality(v_job_ids) = 1 THEN
        PERFORM FROM leaderboard.submission s WHERE s.id = v_submission_ids[1] FOR NO KEY UPDATE;
    ELSE
        SELECT array_agg(s.id) INTO v_submission_ids
        FROM (SELECT DISTINCT g.id FROM unnest(v_submission_ids) AS g (id) ORDER BY g.id) AS u
        CROSS JOIN LATERAL (SELECT s.id FROM leaderboard.submission s WHERE s.id = u.id
                            FOR NO KEY UPDATE SKIP LOCKED) AS s;
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

        SELECT array_agg(u.id) FILTER (WHERE runner.after_attempt(u.id, true)) INTO v_done
        FROM (SELECT c.id FROM unnest(v_concerned) AS c (id) ORDER BY c.id) AS u;
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

ALTER TABLE runner.job ADD COLUMN enqueued boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN runner.job.enqueued IS
    'Made by runner.enqueue, for a submission of somebody else, who may write results of it too.';
UPDATE runner.job j SET enqueued = true
WHERE j.submission_id IN (
    SELECT s.id FROM leaderboard.submission s WHERE NOT coalesce(s.done, false)
    UNION ALL
    SELECT r.submission_id FROM leaderboard.runs r
    WHERE NOT EXISTS (SELECT FROM runner.job_run x WHERE x.run_id = r.id));

-- For a frontend that has made its own leaderboard.submission row: only adds the jobs; returns how many.
CREATE OR REPLACE FUNCTION runner.enqueue(submission_id bigint, mode text, gpu_types text[], priority integer DEFAULT 0)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_submission record;
    v_source text;
    v_directives record;
    v_gpu_types text[];
    v_open text;
    v_added integer;
BEGIN
    PERFORM runner.check_mode(enqueue.mode);
    SELECT s.id, s.leaderboard_id, s.done, s.code_id INTO v_submission
    FROM leaderboard.submission s WHERE s.id = enqueue.submission_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR015', format('submission %s does not exist', enqueue.submission_id), 'Store it first.');
    END IF;
    -- Finished as well: what is open only evaluates it again.
    IF v_submission.done OR EXISTS (
        SELECT FROM runner.job j
        WHERE j.submission_id = v_submission.id AND j.state IN ('queued', 'running')
        HAVING bool_and(j.replaces IS NOT NULL)
    ) THEN
        PERFORM runner.refuse('KR016', format('submission %s is finished', enqueue.submission_id),
            'No run may be added to a finished submission; submit the file again.');
    END IF;
    SELECT runner.check_source(c.code) INTO v_source FROM leaderboard.code_files c WHERE c.id = v_submission.code_id;
    SELECT * INTO v_directives FROM runner.parse_directives(v_source);
    v_gpu_types := runner.choose_gpu_types(v_submission.leaderboard_id, enqueue.gpu_types, v_directives.gpu_types);
    SELECT j.gpu_type INTO v_open FROM runner.job j
    WHERE j.submission_id = v_submission.id AND j.mode = enqueue.mode AND j.gpu_type = ANY (v_gpu_types)
      AND j.state IN ('queued', 'running')
    LIMIT 1;
    IF FOUND THEN
        PERFORM runner.refuse('KR017',
            format('submission %s already waits for mode %s on %s', enqueue.submission_id, enqueue.mode, v_open),
            'Wait for it, or cancel it.');
    END IF;
    UPDATE leaderboard.submission s
    SET mode_category = CASE enqueue.mode WHEN 'leaderboard' THEN 'leaderboard' ELSE 'test' END
    WHERE s.id = v_submission.id AND s.mode_category IS NULL;
    v_added := runner.add_jobs(v_submission.id, enqueue.mode, v_gpu_types, enqueue.priority);
    UPDATE runner.job j SET enqueued = true WHERE j.submission_id = v_submission.id AND NOT j.enqueued;
    RETURN v_added;
END
$$;

-- The results of our jobs are found by way of the jobs, because leaderboard.runs has no index on the submission. Only where
-- somebody else may have written some is it searched: for submissions without a job, and for enqueued ones.
CREATE OR REPLACE VIEW runner.result AS
SELECT a.submission_id, a.job_id, a.run_id, a.gpu_type, a.mode, a.secret, a.passed,
       CASE WHEN NOT a.secret THEN a.score END AS score,
       a.start_time, a.end_time,
       CASE WHEN NOT a.secret THEN a.result END AS result,
       CASE WHEN NOT a.secret THEN a.compilation END AS compilation,
       CASE WHEN NOT a.secret THEN a.meta END AS meta,
       a.system_info
FROM (
    SELECT s.id AS submission_id, x.job_id, r.id AS run_id, r.runner AS gpu_type, r.mode, r.secret, r.passed, r.score,
           r.start_time, r.end_time, r.result, r.compilation, r.meta, r.system_info
    FROM leaderboard.submission s
    CROSS JOIN LATERAL (SELECT j.id FROM runner.job j WHERE j.submission_id = s.id OFFSET 0) AS j
    CROSS JOIN LATERAL (SELECT * FROM runner.job_run x WHERE x.job_id = j.id OFFSET 0) AS x
    CROSS JOIN LATERAL (SELECT * FROM leaderboard.runs r WHERE r.id = x.run_id OFFSET 0) AS r
    UNION ALL
    SELECT s.id, NULL, r.id, r.runner, r.mode, r.secret, r.passed, r.score,
           r.start_time, r.end_time, r.result, r.compilation, r.meta, r.system_info
    FROM leaderboard.submission s
    -- LEFT, and a condition that does not undo it: so the submission comes first, and without one nothing is searched.
    LEFT JOIN leaderboard.runs r ON r.submission_id = s.id
    WHERE (SELECT coalesce(bool_or(j.enqueued), true) FROM runner.job j WHERE j.submission_id = s.id)
      AND coalesce(r.id, 0) <> 0
      AND (SELECT count(*) FROM runner.job_run x WHERE x.run_id = r.id) = 0
) AS a;

-- ---------------------------------------------------------------------------------------------------------------------
-- Cancelling

-- Cancels what waits, asks what runs to stop; returns how many jobs that were. Calls the daemons of what runs, which tell
-- frontends when it has stopped; if nothing runs, tells frontends itself. With a user id it acts for that user: what an
-- operator ordered is the operator's to cancel.
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
            finished_at = CASE j.state WHEN 'queued' THEN now() END
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
        PERFORM pg_notify('runner_events', json_build_object(
            'event', 'cancel', 'submission_id', v_id, 'cancelled', v_queued, 'submission_done', v_done)::text);
    END IF;
    RETURN v_queued + v_running;
END
$$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA runner FROM PUBLIC;
