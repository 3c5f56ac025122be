-- Takes the first queued jobs of one class (GPU type, priority), at most as many as the type has free slots, and says
-- how the host stands. It always returns a row; without a job the job's id is NULL. A group of a batch has no
-- submission and no leaderboard; its `task` is what runner.group_of says. A validation and an evaluation of a final
-- have all of their submission but its id, which is in their `task`. Every ten seconds it counts the hosts that serve
-- the same GPU types, this one included.
--
-- Classes are tried by priority, then in the order in which the host names their types. Within a class the lowest turn
-- is first, which a job got when it was stored (runner.take_turns). One claim in twenty first tries the class whose
-- first job has waited longest, if that is an hour, so no class waits for ever behind a higher one.
--
-- No job of a class waits before its floor (runner.reclaim): behind a held snapshot the index keeps the entries of all
-- jobs that were claimed. Of a paused type nothing is taken. The settings leave the planner no choice: a plan made for
-- a short queue is kept when it is long.
CREATE OR REPLACE FUNCTION runner.claim(
    host text, gpu_types text[], free integer[], lease_s double precision, instance text DEFAULT NULL
) RETURNS TABLE (
    draining boolean, drain_reason text, registered boolean, overdue boolean, rivals integer,
    id bigint, attempt integer, submission_id integer, leaderboard text, gpu_type text, mode text, secret boolean,
    options jsonb, user_id text, file_name text, code bytea, task jsonb, extra jsonb, secret_seed bigint,
    failures integer,
    created_at timestamptz, started_at timestamptz, avoid_slot text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_host record;
    v_taken boolean;
    v_aged boolean := random() < 0.05;
    v_class record;
    v_ids bigint[];
    v_turn bigint;
BEGIN
    SELECT h.draining, h.drain_reason, h.stopped_at IS NULL AS registered, h.gpu_types,
           h.instance, h.login, h.last_seen NOT BETWEEN now() - interval '10 seconds' AND now() AS silent
    INTO v_host FROM runner.host h WHERE h.name = claim.host;
    draining := coalesce(v_host.draining, false);
    drain_reason := v_host.drain_reason;
    -- The name is another daemon's or another login's: this one gets no job and does not update last_seen. Written out,
    -- as runner.is_ours has it, because the row is read already.
    v_taken := NOT coalesce(v_host.login = session_user AND v_host.instance = claim.instance, false)
        AND NOT (runner.is_owner() AND coalesce(v_host.instance = claim.instance, true));
    registered := coalesce(v_host.registered, false) AND NOT v_taken;
    overdue := runner.is_overdue();
    IF v_host.silent AND NOT v_taken THEN
        SELECT count(*) INTO rivals FROM runner.host h
        WHERE h.gpu_types && v_host.gpu_types AND NOT h.draining AND h.stopped_at IS NULL
          AND (h.last_seen > now() - interval '60 seconds' OR h.name = claim.host);
        UPDATE runner.host t SET last_seen = now()
        FROM (SELECT h.name FROM runner.host h WHERE h.name = claim.host FOR NO KEY UPDATE SKIP LOCKED) AS free
        WHERE t.name = free.name;
    END IF;

    FOR v_class IN
        WITH RECURSIVE class AS (
            SELECT t.gpu_type, t.number, t.free,
                   1001 AS priority, 0::bigint AS floor
            FROM unnest(claim.gpu_types, claim.free) WITH ORDINALITY AS t (gpu_type, free, number)
            WHERE t.free > 0 AND NOT draining AND NOT v_taken
              AND NOT EXISTS (SELECT FROM runner.pause p WHERE p.gpu_type = lower(t.gpu_type))
            UNION ALL
            -- The next class that has a clock, or a job in between: nothing was claimed of that class yet.
            SELECT t.gpu_type, t.number, t.free, coalesce(q.priority, k.priority),
                   CASE WHEN q.priority IS NULL THEN k.floor ELSE 0 END
            FROM class t
            LEFT JOIN LATERAL (
                SELECT c.priority, c.floor FROM runner.clock c WHERE c.gpu_type = t.gpu_type AND c.priority < t.priority
                ORDER BY c.gpu_type DESC, c.priority DESC, c.seq DESC LIMIT 1
            ) AS k ON true
            LEFT JOIN LATERAL (
                SELECT j.priority FROM runner.job j
                WHERE j.state = 'queued' AND j.ready AND j.gpu_type = t.gpu_type
                  AND j.priority < t.priority AND j.priority > coalesce(k.priority, -1001)
                ORDER BY j.priority DESC, j.turn, j.id LIMIT 1
            ) AS q ON true
            WHERE coalesce(q.priority, k.priority) IS NOT NULL
        )
        SELECT c.gpu_type, c.priority, c.floor, CASE WHEN a.since IS NULL THEN c.free ELSE 1 END AS free
        FROM class c
        LEFT JOIN LATERAL (
            SELECT greatest(q.created_at, q.not_before) AS since FROM runner.job q
            WHERE v_aged AND q.state = 'queued' AND q.ready AND q.gpu_type = c.gpu_type AND q.priority = c.priority
              AND q.turn >= c.floor AND runner.may_take(q, claim.host)
            ORDER BY q.turn, q.id LIMIT 1
        ) AS a ON a.since < now() - interval '1 hour'
        WHERE c.priority < 1001 ORDER BY a.since NULLS LAST, c.priority DESC, c.number
    LOOP
        SELECT array_agg(f.id), max(f.turn) INTO v_ids, v_turn FROM (
            SELECT q.id, q.turn FROM runner.job q
            WHERE q.state = 'queued' AND q.ready AND q.gpu_type = v_class.gpu_type
              AND q.priority = v_class.priority AND q.turn >= v_class.floor AND runner.may_take(q, claim.host)
            ORDER BY q.turn, q.id LIMIT v_class.free FOR NO KEY UPDATE SKIP LOCKED
        ) AS f;
        EXIT WHEN v_ids IS NOT NULL;
    END LOOP;
    IF v_ids IS NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    RETURN QUERY
    WITH claimed AS (
        UPDATE runner.job j
        SET state = 'running', attempt = j.attempt + 1, lease_owner = claim.host, host = claim.host,
            lease_expires_at = now() + claim.lease_s * interval '1 second', started_at = now(),
            expires_at = NULL, progress = NULL
        WHERE j.id = ANY (v_ids)
        RETURNING j.*
    )
    SELECT draining, drain_reason, registered, overdue, rivals,
           c.id, c.attempt, c.submission_id, l.name, c.gpu_type, c.mode, c.secret, c.options,
           coalesce(s.user_id, c.user_id), s.file_name, f.code,
           CASE WHEN c.batch_id IS NOT NULL THEN runner.group_of(c.id)
                WHEN c.validates IS NOT NULL THEN jsonb_build_object(
                    'validates', c.validates, 'final_id', c.final_id, 'round', c.round, 'task', l.task)
                ELSE l.task END, b.extra, l.secret_seed, c.failures,
           CASE c.failures WHEN 0 THEN greatest(c.created_at, c.not_before) ELSE c.created_at END,
           c.started_at, CASE WHEN c.avoid_host = claim.host THEN c.avoid_slot END
    FROM claimed c
    LEFT JOIN LATERAL (SELECT * FROM leaderboard.submission s
        WHERE s.id = coalesce(c.submission_id, c.validates) OFFSET 0) AS s ON true
    LEFT JOIN LATERAL (SELECT * FROM leaderboard.code_files f WHERE f.id = s.code_id OFFSET 0) AS f ON true
    LEFT JOIN LATERAL (SELECT * FROM leaderboard.leaderboard l WHERE l.id = s.leaderboard_id OFFSET 0) AS l ON true
    LEFT JOIN LATERAL (SELECT * FROM runner.board b WHERE b.leaderboard_id = l.id OFFSET 0) AS b ON true
    ORDER BY c.turn, c.id;
    PERFORM runner.show_running(ARRAY(SELECT j.submission_id FROM runner.job j WHERE j.id = ANY (v_ids)));
    -- The class's clock shows the highest turn claimed. It lags a little while another transaction moves it.
    UPDATE runner.clock c SET seq = c.seq + 1, turn = v_turn
    FROM (SELECT k.seq FROM runner.clock k
          WHERE k.gpu_type = v_class.gpu_type AND k.priority = v_class.priority
          ORDER BY k.gpu_type DESC, k.priority DESC, k.seq DESC LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS top
    WHERE c.gpu_type = v_class.gpu_type AND c.priority = v_class.priority AND c.seq = top.seq AND c.turn < v_turn;
    INSERT INTO runner.clock (gpu_type, priority, turn) SELECT v_class.gpu_type, v_class.priority, v_turn
    WHERE (SELECT c.seq FROM runner.clock c WHERE c.gpu_type = v_class.gpu_type AND c.priority = v_class.priority
           ORDER BY c.gpu_type DESC, c.priority DESC, c.seq DESC LIMIT 1) IS NULL
    ON CONFLICT DO NOTHING;
END
$$;
