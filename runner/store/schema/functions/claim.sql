-- Takes the best queued jobs of one GPU type, at most as many as it has free slots. It also says how the host stands.
-- Every ten seconds it counts the hosts that serve the same GPU types, this one included. It always returns a row;
-- without a job the job's id is NULL. A group of a batch has no submission and no leaderboard; its `task` is what
-- runner.group_of says.
--
-- GPU types are tried by the priority of their best job, then in the order in which the host names them. The host names
-- the type first that it served least recently: types that share slots (one within the other, or two names of one) take
-- turns as users do. Each type is walked along job_ready_idx, so only rows that are taken are locked. Each class is entered
-- at its mark (runner.move_mark). The settings leave the planner no choice: a plan made while the queue was short would be
-- kept when it is long.
--
-- Within a class the lowest turn is first, which a job got when it was stored: see runner.take_turns.
--
-- Priorities are strict, but one claim in twenty looks at the first job of every class. If there is one that has waited for
-- an hour, it takes the one that has waited longest, so no class waits for ever behind a higher one.
--
-- For the types in `unranked`, only jobs whose times do not count are taken: in the same order, along
-- job_ready_unranked_idx. Of a paused type nothing is taken.
CREATE OR REPLACE FUNCTION runner.claim(
    host text, gpu_types text[], free integer[], lease_s double precision, at_most integer DEFAULT NULL,
    instance text DEFAULT NULL, unranked text[] DEFAULT '{}'
) RETURNS TABLE (
    draining boolean, drain_reason text, registered boolean, overdue boolean, rivals integer,
    id bigint, attempt integer, submission_id integer, leaderboard text, gpu_type text, mode text, secret boolean,
    user_id text, file_name text, code bytea, task jsonb, extra jsonb, secret_seed bigint, failures integer,
    created_at timestamptz, started_at timestamptz, avoid_slot text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_host record;
    v_taken boolean;
    v_aged boolean := random() < 0.05;
    v_head record;
    v_class record;
    v_ids bigint[];
    v_submission_ids integer[];
    v_priorities integer[];
    v_turns bigint[];
    v_free integer[] := claim.free;
    v_number bigint;
BEGIN
    IF EXISTS (SELECT FROM runner.pause) THEN
        SELECT array_agg(CASE WHEN EXISTS (SELECT FROM runner.pause p WHERE p.gpu_type = lower(w.gpu_type)) THEN 0
                              ELSE w.free END ORDER BY w.number)
        INTO v_free FROM unnest(claim.gpu_types, claim.free) WITH ORDINALITY AS w (gpu_type, free, number);
    END IF;
    SELECT h.draining, h.drain_reason, h.stopped_at IS NULL AS registered, h.gpu_types,
           h.instance, h.login, h.last_seen < now() - interval '10 seconds' AS silent
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
    END IF;

    IF NOT draining AND NOT v_taken THEN
        FOR v_head IN
            WITH RECURSIVE head AS (
                SELECT t.gpu_type, t.free, t.gpu_type = ANY (claim.unranked) AS unranked, t.number, h.priority, h.turn, h.id
                FROM unnest(claim.gpu_types, v_free) WITH ORDINALITY AS t (gpu_type, free, number)
                CROSS JOIN LATERAL runner.head(claim.host, t.gpu_type, t.gpu_type = ANY (claim.unranked)) AS h
                WHERE t.free > 0 AND h.id IS NOT NULL
                UNION ALL
                SELECT t.gpu_type, t.free, t.unranked, t.number, h.priority, h.turn, h.id
                FROM head t CROSS JOIN LATERAL runner.head(claim.host, t.gpu_type, t.unranked, t.priority) AS h
                WHERE v_aged AND h.id IS NOT NULL
            )
            SELECT t.*, a.since FROM head t
            LEFT JOIN LATERAL (
                SELECT j.created_at AS since FROM runner.job j WHERE j.id = t.id AND v_aged OFFSET 0
            ) AS a ON a.since < now() - interval '1 hour'
            ORDER BY a.since NULLS LAST, t.priority DESC, t.number
        LOOP
            SELECT array_agg(p.id), array_agg(p.submission_id), array_agg(p.priority), array_agg(p.turn)
            INTO v_ids, v_submission_ids, v_priorities, v_turns
            FROM runner.take_first(
                claim.host, v_head.gpu_type, least(CASE WHEN v_head.since IS NULL THEN v_head.free ELSE 1 END, claim.at_most),
                v_head.unranked, v_head.priority, v_head.turn, v_head.id) AS p;
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
                not_before = NULL, expires_at = NULL, progress = NULL, reserved_by = NULL, reserved_until = NULL
            WHERE j.id = ANY (v_ids)
            RETURNING j.id, j.attempt, j.submission_id, j.gpu_type, j.mode, j.secret, j.failures,
                      j.created_at, j.started_at, j.avoid_host, j.avoid_slot, j.priority, j.turn, j.batch_id, j.user_id
        )
        SELECT draining, drain_reason, registered, overdue, rivals,
               c.id, c.attempt, c.submission_id, l.name, c.gpu_type, c.mode, c.secret, coalesce(s.user_id, c.user_id),
               s.file_name, f.code,
               CASE WHEN c.batch_id IS NULL THEN l.task ELSE runner.group_of(c.id) END, b.extra, l.secret_seed, c.failures, c.created_at, c.started_at,
               CASE WHEN c.avoid_host = claim.host THEN c.avoid_slot END
        FROM claimed c
        LEFT JOIN LATERAL (SELECT * FROM leaderboard.submission s WHERE s.id = c.submission_id OFFSET 0) AS s ON true
        LEFT JOIN LATERAL (SELECT * FROM leaderboard.code_files f WHERE f.id = s.code_id OFFSET 0) AS f ON true
        LEFT JOIN LATERAL (SELECT * FROM leaderboard.leaderboard l WHERE l.id = s.leaderboard_id OFFSET 0) AS l ON true
        LEFT JOIN LATERAL (SELECT * FROM runner.board b WHERE b.leaderboard_id = l.id OFFSET 0) AS b ON true
        ORDER BY c.priority DESC, c.turn, c.id;

        PERFORM runner.show_running(v_submission_ids);
        FOR v_class IN
            SELECT p.priority, max(p.turn) AS turn
            FROM unnest(v_priorities, v_turns) AS p (priority, turn) GROUP BY p.priority ORDER BY p.priority
        LOOP
            PERFORM runner.advance_clock(v_head.gpu_type, v_class.priority, v_class.turn);
        END LOOP;
    END IF;
    -- A prime, so that no rhythm of the claims leaves a class out.
    v_number := nextval('runner.claim_number');
    IF v_number % 31 = 0 THEN
        IF v_ids IS NOT NULL THEN
            PERFORM runner.move_marks(v_head.gpu_type, v_head.priority);
        ELSE
            PERFORM runner.move_marks(claim.gpu_types[1 + (v_number / 31) % greatest(cardinality(claim.gpu_types), 1)]);
        END IF;
    END IF;
    IF v_host.silent AND NOT v_taken THEN
        UPDATE runner.host t SET last_seen = now()
        FROM (SELECT h.name FROM runner.host h WHERE h.name = claim.host FOR NO KEY UPDATE SKIP LOCKED) AS free
        WHERE t.name = free.name;
    END IF;
END
$$;
