-- Evaluates again what matches and returns how many jobs that makes. The old results count until the new ones are
-- there. A second call makes no further jobs while those of the first wait or run. SECURITY DEFINER: an operator's role
-- needs no right on any table.
CREATE OR REPLACE FUNCTION runner.rerun(
    submission_id bigint DEFAULT NULL,
    leaderboard text DEFAULT NULL,
    host text DEFAULT NULL,
    since timestamptz DEFAULT NULL,
    until timestamptz DEFAULT NULL,
    gpu_types text[] DEFAULT NULL,
    reason text DEFAULT NULL,
    priority integer DEFAULT -1,
    verdicts text[] DEFAULT NULL,
    cause text DEFAULT NULL
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_priority integer := coalesce(rerun.priority, -1);
    v_reason text := nullif(btrim(rerun.reason), '');
    v_ids integer[];
    v_made integer;
    v_obstacle text;
    v_gpu_types text;
BEGIN
    PERFORM runner.check_isolation();
    PERFORM runner.check_priority(v_priority);
    SELECT array_agg(DISTINCT m.submission_id) INTO v_ids
    FROM runner.matching(rerun.submission_id, rerun.leaderboard, rerun.host, rerun.since, rerun.until, rerun.gpu_types,
                         rerun.verdicts, rerun.cause) m
    WHERE m.obstacle IS NULL;
    PERFORM FROM leaderboard.submission s WHERE s.id = ANY (v_ids) ORDER BY s.id FOR NO KEY UPDATE;

    -- Checked again under the locks: jobs may have begun meanwhile.
    WITH chosen AS MATERIALIZED (
        SELECT m.* FROM runner.matching(
            rerun.submission_id, rerun.leaderboard, rerun.host, rerun.since, rerun.until, rerun.gpu_types,
                         rerun.verdicts, rerun.cause) m
        WHERE m.obstacle IS NULL AND m.submission_id = ANY (v_ids)
    ), start AS MATERIALIZED (
        SELECT u.user_id, u.gpu_type, runner.take_turns(u.user_id, u.gpu_type, v_priority, u.evaluations) AS turn
        FROM (SELECT c.user_id, c.gpu_type, count(*)::integer AS evaluations FROM chosen c
              GROUP BY c.user_id, c.gpu_type ORDER BY c.user_id COLLATE "C", c.gpu_type COLLATE "C") AS u
    ), placed AS (
        SELECT c.*, start.turn - 2 + 2 * row_number() OVER (
                   PARTITION BY c.user_id, c.gpu_type ORDER BY c.submission_id, c.mode) AS turn
        FROM chosen c JOIN start USING (user_id, gpu_type)
    ), made AS (
        INSERT INTO runner.job (submission_id, user_id, gpu_type, mode, secret, options, priority, turn, replaces,
                                after_public, ready)
        SELECT p.submission_id, p.user_id, p.gpu_type, p.mode, j.secret, j.options, v_priority, p.turn, j.id, f.follows,
               b.paused IS NULL AND NOT f.follows
        FROM placed p CROSS JOIN LATERAL unnest(p.twins) WITH ORDINALITY AS t (id, number)
        JOIN runner.job j ON j.id = t.id
        -- Public first: what comes second is the secret one.
        CROSS JOIN LATERAL (SELECT t.number > 1 AS follows) AS f
        JOIN leaderboard.submission s ON s.id = p.submission_id
        LEFT JOIN runner.board b ON b.leaderboard_id = s.leaderboard_id
        ORDER BY p.submission_id, p.gpu_type, p.mode, j.secret
        RETURNING id, submission_id, gpu_type, replaces
    ), logged AS (
        INSERT INTO runner.event (kind, submission_id, job_id, detail)
        SELECT 'rerun', m.submission_id, m.id,
               jsonb_strip_nulls(jsonb_build_object('replaces', m.replaces, 'reason', v_reason))
        FROM made m ORDER BY m.id
    )
    SELECT count(*), array_agg(DISTINCT m.submission_id), string_agg(DISTINCT m.gpu_type, ',')
    INTO v_made, v_ids, v_gpu_types FROM made m;

    IF v_made = 0 THEN
        IF rerun.submission_id IS NOT NULL THEN
            SELECT m.obstacle INTO v_obstacle
            FROM runner.matching(
                rerun.submission_id, rerun.leaderboard, rerun.host, rerun.since, rerun.until, rerun.gpu_types,
                         rerun.verdicts, rerun.cause) m
            LIMIT 1;
            PERFORM runner.refuse('KR020', format('submission %s is not evaluated again: %s', rerun.submission_id,
                CASE v_obstacle
                    WHEN 'open' THEN 'it waits or runs'
                    WHEN 'hacked' THEN 'it is marked hacked, so no result could count'
                    WHEN 'not offered' THEN 'its leaderboard no longer offers the GPU type'
                    ELSE 'no finished job of it matches'
                END), 'Wait for what is open or cancel it; else mend what is named here.');
        END IF;
        RETURN 0;
    END IF;

    INSERT INTO leaderboard.submission_job_status AS t (submission_id, status)
    SELECT u.id, 'pending' FROM unnest(v_ids) AS u (id) ORDER BY u.id
    ON CONFLICT (submission_id) DO UPDATE SET status = 'pending', error = NULL
        WHERE t.status IS DISTINCT FROM 'running';
    UPDATE leaderboard.submission s SET done = false WHERE s.id = ANY (v_ids);
    PERFORM runner.call('runner_queue', v_gpu_types);
    RETURN v_made;
END
$$;
