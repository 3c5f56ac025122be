-- Evaluate again, take out of the ranking, drain hosts, forget what is old.
--
-- An evaluation is what one submission has on one GPU type in one mode: one job, or two twins. Its history is the jobs
-- of that key by id; a job with `replaces` is a rerun. A job counts while retired_at is NULL. It is retired as
--   replaced     a later job of its key has a verdict of its own;
--   dropped      it was a rerun and ended as internal_error or cancelled: what it should have replaced stands;
--   invalidated  an operator took it out. It goes on speaking for its key ("taken out of the ranking: …") until a
--                rerun replaces it.
-- The rows that a retired job wrote leave leaderboard.runs for runner.superseded_run in the same transaction, so that
-- every reader, KernelBot's own tools too, sees what counts and no more.

ALTER TABLE runner.job
    ADD COLUMN retired_as text CHECK (retired_as IN ('replaced', 'dropped', 'invalidated')),
    ADD COLUMN marked_hacked boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT job_retired_when_over CHECK (
        (retired_at IS NULL) = (retired_as IS NULL) AND (retired_at IS NULL OR state IN ('done', 'cancelled')));
COMMENT ON COLUMN runner.job.retired_as IS 'NULL: its result counts. replaced, dropped or invalidated: it does not, see retired_reason.';
COMMENT ON COLUMN runner.job.marked_hacked IS
    'Its verdict made submission.status hacked; a mark that somebody else set is never taken back.';
UPDATE runner.job j SET marked_hacked = true
FROM leaderboard.submission s
WHERE s.id = j.submission_id AND s.status = 'hacked' AND j.verdict = 'rejected';

CREATE INDEX stale_result_age_idx ON runner.stale_result (received_at);

-- Takes the results of finished jobs out of what counts: marks the jobs, moves their rows whole. The caller holds the
-- submissions' rows.
CREATE FUNCTION runner.retire(job_ids bigint[], retired_as text, reasons text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    UPDATE runner.job j
    SET retired_at = coalesce(j.retired_at, now()), retired_as = retire.retired_as,
        retired_reason = concat_ws('; ', j.retired_reason, w.reason)
    FROM unnest(job_ids, reasons) AS w (job_id, reason)
    WHERE j.id = w.job_id;

    WITH moved AS (
        DELETE FROM leaderboard.runs r
        USING runner.job_run x, unnest(job_ids, reasons) AS w (job_id, reason)
        WHERE x.job_id = w.job_id AND r.id = x.run_id
        RETURNING r.id, r.submission_id, x.job_id, to_jsonb(r) AS run, w.reason
    )
    INSERT INTO runner.superseded_run (run_id, submission_id, job_id, run, reason)
    SELECT m.id, m.submission_id, m.job_id, m.run, m.reason FROM moved m;
END
$$;

-- Retires what the finished reruns of a submission replace, or the reruns themselves where they found nothing. The
-- caller holds the submission's row.
CREATE FUNCTION runner.replace_jobs(submission_id integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_jobs bigint[];
    v_reasons text[];
BEGIN
    SELECT array_agg(j.id), array_agg(CASE j.state WHEN 'cancelled' THEN 'cancelled' ELSE 'ended without a result' END
                                      || ', so the earlier result stands')
    INTO v_jobs, v_reasons
    -- OFFSET, here and below: found by the submission and by nothing else, as in settle.
    FROM (SELECT o.* FROM runner.job o WHERE o.submission_id = replace_jobs.submission_id OFFSET 0) AS j
    WHERE j.replaces IS NOT NULL AND j.retired_at IS NULL
      AND (j.state = 'cancelled' OR j.verdict = 'internal_error');
    IF v_jobs IS NOT NULL THEN
        PERFORM runner.retire(v_jobs, 'dropped', v_reasons);
    END IF;

    -- Every earlier job of the key, not only the one named by `replaces`: that may have been dropped itself.
    SELECT array_agg(o.id), array_agg(o.reason) INTO v_jobs, v_reasons
    FROM (
        SELECT DISTINCT ON (b.id) b.id, concat(format('replaced by job %s', a.id), ': ' || (
                   SELECT max(e.detail ->> 'reason') FROM runner.event e WHERE e.job_id = a.id AND e.kind = 'rerun'
               )) AS reason
        FROM (SELECT o.* FROM runner.job o WHERE o.submission_id = replace_jobs.submission_id OFFSET 0) AS a
        JOIN (SELECT o.* FROM runner.job o WHERE o.submission_id = replace_jobs.submission_id OFFSET 0) AS b
          ON b.gpu_type = a.gpu_type AND b.mode = a.mode AND b.secret = a.secret AND b.id < a.id
        WHERE a.replaces IS NOT NULL AND a.retired_at IS NULL AND a.state = 'done'
          AND b.state IN ('done', 'cancelled') AND (b.retired_at IS NULL OR b.retired_as = 'invalidated')
        ORDER BY b.id, a.id DESC
    ) AS o;
    IF v_jobs IS NOT NULL THEN
        PERFORM runner.retire(v_jobs, 'replaced', v_reasons);
        INSERT INTO runner.event (kind, submission_id, job_id, attempt, host, detail)
        SELECT 'superseded', j.submission_id, j.id, j.attempt, j.host,
               jsonb_build_object('verdict', j.verdict, 'reason', w.reason)
        FROM unnest(v_jobs, v_reasons) AS w (job_id, reason) JOIN runner.job j ON j.id = w.job_id
        ORDER BY j.id;
    END IF;
END
$$;

-- Retires what finished reruns replace, then, if no job is left open, writes the final words of the submission: job
-- status, then done. True: it is finished. The caller holds the submission's row: of two jobs that end together, the
-- second one sees the first.
CREATE OR REPLACE FUNCTION runner.settle(submission_id integer) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_open boolean;
    v_rerun boolean;
    v_status text;
    v_error text;
    v_before text;
    v_ours boolean;
BEGIN
    -- Aggregates, because no index but the submission's is a way to them: a plan that was made when nothing was queued
    -- or replaced would walk the indexes of what is, and be kept when there are thousands.
    SELECT bool_or(j.state IN ('queued', 'running')),
           bool_or(j.state IN ('done', 'cancelled') AND j.replaces IS NOT NULL AND j.retired_at IS NULL)
    INTO v_open, v_rerun
    FROM runner.job j WHERE j.submission_id = settle.submission_id;
    IF v_rerun THEN
        PERFORM runner.replace_jobs(settle.submission_id);
    END IF;
    IF v_open THEN
        RETURN false;
    END IF;

    -- The gravest word of all jobs. A non-ranked job that has rows succeeded, whatever they say: clients read them.
    SELECT w.status, w.error INTO v_status, v_error
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
        -- Neither EXISTS nor a join: planned when there were few results, they would read all, and go on to when there
        -- are many.
        CROSS JOIN LATERAL (
            SELECT count(*) AS rows,
                   bool_and((SELECT r.passed FROM leaderboard.runs r WHERE r.id = x.run_id)) AS passed
            FROM runner.job_run x WHERE x.job_id = j.id
        ) AS n
        WHERE j.submission_id = settle.submission_id AND (j.retired_at IS NULL OR j.retired_as = 'invalidated')
    ) AS w
    ORDER BY array_position(ARRAY['hacked', 'failed', 'timed_out', 'succeeded'], w.status), w.retired_at IS NULL,
             w.secret, w.id
    LIMIT 1;

    INSERT INTO leaderboard.submission_job_status AS t (submission_id, status, error, last_heartbeat)
    VALUES (settle.submission_id, v_status, CASE WHEN v_status <> 'succeeded' THEN v_error END, now())
    ON CONFLICT (submission_id) DO UPDATE
    SET status = EXCLUDED.status, error = EXCLUDED.error, last_heartbeat = EXCLUDED.last_heartbeat;

    SELECT s.status INTO v_before FROM leaderboard.submission s WHERE s.id = settle.submission_id;
    IF v_status = 'hacked' OR v_before = 'hacked' THEN
        -- Whose mark it is, is remembered: a later verdict takes back ours, never somebody else's.
        v_ours := v_before <> 'hacked' OR EXISTS (
            SELECT FROM runner.job j WHERE j.submission_id = settle.submission_id AND j.marked_hacked);
        UPDATE runner.job j
        SET marked_hacked = v_ours AND j.verdict = 'rejected' AND j.retired_at IS NULL
        WHERE j.submission_id = settle.submission_id AND (j.marked_hacked OR j.verdict = 'rejected');
    END IF;
    UPDATE leaderboard.submission s
    SET done = true, status = CASE WHEN v_status = 'hacked' THEN 'hacked' WHEN v_ours THEN 'active' ELSE s.status END
    WHERE s.id = settle.submission_id;
    RETURN true;
END
$$;

CREATE TYPE runner.evaluation AS (
    submission_id integer,
    leaderboard text,
    user_id text,
    gpu_type text,
    mode text,
    twins bigint[],
    counting bigint[],
    obstacle text
);
COMMENT ON TYPE runner.evaluation IS
    'What a submission has on a GPU type in a mode: its latest finished jobs, those that count, why it cannot run again.';

-- The evaluations with a finished job that matches every filter given; what reruns and invalidations are made of.
-- `twins`: the latest finished job of each, public first. `counting`: its jobs with a result that counts. `obstacle`:
-- NULL, or why it is not evaluated again: open, cancelled (unless asked for by its number), hacked, not offered.
-- SECURITY DEFINER, as those that act on it.
CREATE FUNCTION runner.matching(
    submission_id bigint, leaderboard text, host text, since timestamptz, until timestamptz, gpu_types text[]
) RETURNS SETOF runner.evaluation
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_board_id integer;
    v_gpu_types text[];
    v_unknown text;
BEGIN
    IF num_nonnulls(matching.submission_id, matching.leaderboard, matching.host, matching.since, matching.until,
                    nullif(matching.gpu_types, '{}')) = 0 THEN
        PERFORM runner.refuse('KR019', 'no filter given, and everything is never meant',
            'Name a submission, a leaderboard, a host, a time span or a GPU type.');
    END IF;
    IF matching.since >= matching.until THEN
        PERFORM runner.refuse('KR019', format('the time span from %s until %s is empty', matching.since, matching.until),
            'since comes before until.');
    END IF;
    IF matching.submission_id IS NOT NULL
       AND NOT EXISTS (SELECT FROM leaderboard.submission s WHERE s.id = matching.submission_id) THEN
        PERFORM runner.refuse('KR015', format('submission %s does not exist', matching.submission_id),
            'Look at the list of submissions.');
    END IF;
    IF matching.leaderboard IS NOT NULL THEN
        SELECT l.id INTO v_board_id FROM leaderboard.leaderboard l WHERE l.name = matching.leaderboard;
        IF NOT FOUND THEN
            PERFORM runner.refuse('KR001', format('leaderboard %L does not exist', matching.leaderboard),
                'Look at the list of leaderboards.');
        END IF;
    END IF;
    IF matching.host IS NOT NULL AND NOT EXISTS (SELECT FROM runner.host h WHERE h.name = matching.host)
       AND NOT EXISTS (SELECT FROM runner.job j WHERE j.host = matching.host AND j.state = 'done') THEN
        PERFORM runner.refuse('KR018', format('host %L is not known here', matching.host), 'Look at the list of hosts.');
    END IF;
    -- Every name of the types asked for, in lower case.
    SELECT array_agg(DISTINCT lower(n.name)) INTO v_gpu_types
    FROM unnest(matching.gpu_types) AS w (wish)
    CROSS JOIN LATERAL (
        SELECT w.wish
        UNION SELECT unnest(r.name || r.aliases) FROM runner.gpu_type r
        WHERE EXISTS (SELECT FROM unnest(r.name || r.aliases) AS a (name) WHERE lower(a.name) = lower(w.wish))
    ) AS n (name);
    SELECT w.wish INTO v_unknown
    FROM unnest(matching.gpu_types) AS w (wish)
    WHERE NOT EXISTS (SELECT FROM runner.gpu_type r, unnest(r.name || r.aliases) AS a (name)
                      WHERE lower(a.name) = lower(w.wish))
      AND NOT EXISTS (SELECT FROM leaderboard.gpu_type g WHERE lower(g.gpu_type) = lower(w.wish))
      AND NOT EXISTS (SELECT FROM runner.job j WHERE lower(j.gpu_type) = lower(w.wish));
    IF v_unknown IS NOT NULL THEN
        PERFORM runner.refuse('KR003', format('GPU type %L is not known here', v_unknown), 'Look at the list of GPU types.');
    END IF;

    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT DISTINCT j.submission_id, j.gpu_type, j.mode
        FROM runner.job j
        WHERE j.state IN ('done', 'cancelled') AND (j.retired_at IS NULL OR j.retired_as = 'invalidated')
          AND (matching.submission_id IS NULL OR j.submission_id = matching.submission_id)
          AND (v_board_id IS NULL OR j.submission_id IN (
              SELECT s.id FROM leaderboard.submission s WHERE s.leaderboard_id = v_board_id))
          -- state = 'done', because that is what the index on (host, finished_at) holds.
          AND (matching.host IS NULL OR (j.host = matching.host AND j.state = 'done'))
          AND (matching.since IS NULL OR j.finished_at >= matching.since)
          AND (matching.until IS NULL OR j.finished_at < matching.until)
          AND (v_gpu_types IS NULL OR lower(j.gpu_type) = ANY (v_gpu_types))
    ), latest AS (
        SELECT DISTINCT ON (f.submission_id, f.gpu_type, f.mode, j.secret)
               f.submission_id, f.gpu_type, f.mode, j.secret, j.id, j.state
        FROM found f
        JOIN runner.job j ON j.submission_id = f.submission_id AND j.gpu_type = f.gpu_type AND j.mode = f.mode
        WHERE j.state IN ('done', 'cancelled') AND (j.retired_at IS NULL OR j.retired_as = 'invalidated')
        ORDER BY f.submission_id, f.gpu_type, f.mode, j.secret, j.id DESC
    ), pair AS (
        SELECT t.submission_id, t.gpu_type, t.mode, array_agg(t.id ORDER BY t.secret) AS twins,
               bool_or(t.state = 'cancelled') AS cancelled
        FROM latest t GROUP BY t.submission_id, t.gpu_type, t.mode
    )
    SELECT p.submission_id, l.name, s.user_id, p.gpu_type, p.mode, p.twins,
           ARRAY(SELECT c.id FROM runner.job c
                 WHERE c.submission_id = p.submission_id AND c.gpu_type = p.gpu_type AND c.mode = p.mode
                   AND c.state = 'done' AND c.retired_at IS NULL ORDER BY c.id),
           CASE
               WHEN EXISTS (SELECT FROM runner.job o
                            WHERE o.submission_id = p.submission_id AND o.gpu_type = p.gpu_type AND o.mode = p.mode
                              AND o.state IN ('queued', 'running')) THEN 'open'
               WHEN p.cancelled AND matching.submission_id IS NULL THEN 'cancelled'
               -- By somebody else: no result of ours could bring it back.
               WHEN (s.status = 'hacked' OR EXISTS (SELECT FROM leaderboard.submission_job_status t
                                                    WHERE t.submission_id = s.id AND t.status = 'hacked'))
                    AND NOT EXISTS (SELECT FROM runner.job m WHERE m.submission_id = s.id AND m.marked_hacked)
                    THEN 'hacked'
               WHEN NOT EXISTS (SELECT FROM leaderboard.gpu_type g
                                WHERE g.leaderboard_id = s.leaderboard_id AND g.gpu_type = p.gpu_type)
                    THEN 'not offered'
           END
    FROM pair p
    JOIN leaderboard.submission s ON s.id = p.submission_id
    JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
    ORDER BY p.submission_id, p.gpu_type, p.mode;
END
$$;

-- Evaluates again what matches; returns how many jobs that makes. The old results count until the new ones are there.
-- Twice in a row makes the jobs once: what waits or runs is left alone.
-- SECURITY DEFINER: an operator's role needs no right on any table.
CREATE FUNCTION runner.rerun(
    submission_id bigint DEFAULT NULL,
    leaderboard text DEFAULT NULL,
    host text DEFAULT NULL,
    since timestamptz DEFAULT NULL,
    until timestamptz DEFAULT NULL,
    gpu_types text[] DEFAULT NULL,
    reason text DEFAULT NULL,
    priority integer DEFAULT -1
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
    PERFORM runner.check_priority(v_priority);
    SELECT array_agg(DISTINCT m.submission_id) INTO v_ids
    FROM runner.matching(rerun.submission_id, rerun.leaderboard, rerun.host, rerun.since, rerun.until, rerun.gpu_types) m
    WHERE m.obstacle IS NULL;
    PERFORM FROM leaderboard.submission s WHERE s.id = ANY (v_ids) ORDER BY s.id FOR NO KEY UPDATE;

    -- Asked again under the locks: something may have begun meanwhile.
    WITH chosen AS MATERIALIZED (
        SELECT m.* FROM runner.matching(
            rerun.submission_id, rerun.leaderboard, rerun.host, rerun.since, rerun.until, rerun.gpu_types) m
        WHERE m.obstacle IS NULL AND m.submission_id = ANY (v_ids)
    ), start AS MATERIALIZED (
        SELECT u.user_id, u.gpu_type, runner.take_turns(u.user_id, u.gpu_type, v_priority, u.evaluations) AS turn
        FROM (SELECT c.user_id, c.gpu_type, count(*)::integer AS evaluations FROM chosen c
              GROUP BY c.user_id, c.gpu_type ORDER BY c.user_id COLLATE "C", c.gpu_type COLLATE "C") AS u
    ), placed AS (
        SELECT c.*, start.turn - 1 + row_number() OVER (
                   PARTITION BY c.user_id, c.gpu_type ORDER BY c.submission_id, c.mode) AS turn
        FROM chosen c JOIN start USING (user_id, gpu_type)
    ), made AS (
        INSERT INTO runner.job (submission_id, user_id, gpu_type, mode, secret, priority, turn, replaces)
        SELECT p.submission_id, p.user_id, p.gpu_type, p.mode, j.secret, v_priority, p.turn, j.id
        FROM placed p CROSS JOIN LATERAL unnest(p.twins) AS t (id) JOIN runner.job j ON j.id = t.id
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
                rerun.submission_id, rerun.leaderboard, rerun.host, rerun.since, rerun.until, rerun.gpu_types) m
            LIMIT 1;
            PERFORM runner.refuse('KR020', format('submission %s is not evaluated again: %s', rerun.submission_id,
                CASE v_obstacle
                    WHEN 'open' THEN 'it waits or runs'
                    WHEN 'hacked' THEN 'somebody marked it hacked, so no result could count'
                    WHEN 'not offered' THEN 'its leaderboard no longer offers the GPU type'
                    ELSE 'no finished job of it matches'
                END), 'Wait for what is open or cancel it; else mend what is named here.');
        END IF;
        RETURN 0;
    END IF;

    INSERT INTO leaderboard.submission_job_status AS t (submission_id, status)
    SELECT u.id, 'pending' FROM unnest(v_ids) AS u (id) ORDER BY u.id
    ON CONFLICT (submission_id) DO UPDATE SET status = 'pending', error = NULL WHERE t.status IS DISTINCT FROM 'running';
    UPDATE leaderboard.submission s SET done = false WHERE s.id = ANY (v_ids);
    PERFORM runner.call('runner_queue', v_gpu_types);
    RETURN v_made;
END
$$;

-- Takes what matches out of the ranking, both twins together; returns how many jobs that concerned. What waits or runs
-- is not touched. A rerun brings a submission back.
CREATE FUNCTION runner.invalidate(
    submission_id bigint DEFAULT NULL,
    leaderboard text DEFAULT NULL,
    host text DEFAULT NULL,
    since timestamptz DEFAULT NULL,
    until timestamptz DEFAULT NULL,
    gpu_types text[] DEFAULT NULL,
    reason text DEFAULT NULL
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_reason text := 'taken out of the ranking: ' || nullif(btrim(invalidate.reason), '');
    v_ids integer[];
    v_jobs bigint[];
    v_payload text;
BEGIN
    IF v_reason IS NULL THEN
        PERFORM runner.refuse('KR021', 'no reason given', 'Say why; the submission''s author reads it.');
    END IF;
    SELECT array_agg(DISTINCT m.submission_id) INTO v_ids
    FROM runner.matching(invalidate.submission_id, invalidate.leaderboard, invalidate.host, invalidate.since,
                         invalidate.until, invalidate.gpu_types) m
    WHERE m.counting <> '{}';
    PERFORM FROM leaderboard.submission s WHERE s.id = ANY (v_ids) ORDER BY s.id FOR NO KEY UPDATE;

    SELECT array_agg(c.id), array_agg(DISTINCT m.submission_id) INTO v_jobs, v_ids
    FROM runner.matching(invalidate.submission_id, invalidate.leaderboard, invalidate.host, invalidate.since,
                         invalidate.until, invalidate.gpu_types) m
    CROSS JOIN LATERAL unnest(m.counting) AS c (id)
    WHERE m.submission_id = ANY (v_ids);
    IF v_jobs IS NULL THEN
        RETURN 0;
    END IF;

    PERFORM runner.retire(v_jobs, 'invalidated', array_fill(v_reason, ARRAY[cardinality(v_jobs)]));
    INSERT INTO runner.event (kind, submission_id, job_id, attempt, host, detail)
    SELECT 'invalidated', j.submission_id, j.id, j.attempt, j.host,
           jsonb_build_object('verdict', j.verdict, 'reason', btrim(invalidate.reason))
    FROM runner.job j WHERE j.id = ANY (v_jobs) ORDER BY j.id;
    PERFORM runner.settle(u.id) FROM unnest(v_ids) AS u (id);

    v_payload := json_build_object('event', 'invalidated', 'submissions', v_ids)::text;
    PERFORM pg_notify('runner_events', CASE
        WHEN octet_length(v_payload) < 7900 THEN v_payload
        ELSE json_build_object('event', 'invalidated', 'submissions', NULL)::text
    END);
    RETURN cardinality(v_jobs);
END
$$;

-- A host finishes what runs and claims nothing until undrained, whatever its daemon does; true: it was not draining.
CREATE FUNCTION runner.drain(host text, reason text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_before record;
    v_reason text := nullif(btrim(drain.reason), '');
BEGIN
    SELECT h.draining, h.drain_reason INTO v_before FROM runner.host h WHERE h.name = drain.host FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR018', format('host %L is not known here', drain.host), 'Look at the list of hosts.');
    END IF;
    IF NOT v_before.draining OR v_before.drain_reason IS DISTINCT FROM v_reason THEN
        UPDATE runner.host h SET draining = true, drain_reason = v_reason WHERE h.name = drain.host;
        INSERT INTO runner.event (kind, host, detail)
        VALUES ('drained', drain.host, jsonb_strip_nulls(jsonb_build_object('reason', v_reason)));
    END IF;
    PERFORM runner.call('runner_hosts', drain.host);
    RETURN NOT v_before.draining;
END
$$;

-- The host claims again; true: it was draining.
CREATE FUNCTION runner.undrain(host text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_draining boolean;
BEGIN
    SELECT h.draining INTO v_draining FROM runner.host h WHERE h.name = undrain.host FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR018', format('host %L is not known here', undrain.host), 'Look at the list of hosts.');
    END IF;
    IF v_draining THEN
        UPDATE runner.host h SET draining = false, drain_reason = NULL WHERE h.name = undrain.host;
        INSERT INTO runner.event (kind, host) VALUES ('undrained', undrain.host);
    END IF;
    PERFORM runner.call('runner_hosts', undrain.host);
    RETURN v_draining;
END
$$;

-- Forgets, at most `at_most` rows of each kind at once: artifacts past their time, evidence and events older than
-- `keep`, hosts that are gone for a week, shares that their clock has passed. One caller at a time; another gets zeros.
-- SECURITY DEFINER: a daemon's role needs no right to delete these.
CREATE FUNCTION runner.reap(
    keep interval, at_most integer,
    OUT artifacts integer, OUT stale_results integer, OUT events integer, OUT hosts integer, OUT shares integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    artifacts := 0; stale_results := 0; events := 0; hosts := 0; shares := 0;
    -- The key is arbitrary and only ours. Ends with the transaction.
    IF NOT pg_try_advisory_xact_lock(7016325910443211) THEN
        RETURN;
    END IF;

    -- A file may have 64 MiB, which is 32,000 rows to delete: at most 256 MiB at once, but always one.
    DELETE FROM runner.artifact a USING (
        SELECT e.id FROM (
            SELECT d.id, sum(octet_length(d.data)) OVER w - octet_length(d.data) AS bytes_before
            FROM (SELECT x.id, x.expires_at, x.data FROM runner.artifact x
                  WHERE x.expires_at <= now() ORDER BY x.expires_at LIMIT at_most) AS d
            WINDOW w AS (ORDER BY d.expires_at, d.id)
        ) AS e WHERE e.bytes_before < 268435456
    ) AS due WHERE a.id = due.id;
    GET DIAGNOSTICS artifacts = ROW_COUNT;

    DELETE FROM runner.stale_result r WHERE r.id IN (
        SELECT x.id FROM runner.stale_result x WHERE x.received_at < now() - keep ORDER BY x.received_at LIMIT at_most);
    GET DIAGNOSTICS stale_results = ROW_COUNT;

    DELETE FROM runner.event e WHERE e.id IN (
        SELECT x.id FROM runner.event x WHERE x.at < now() - keep ORDER BY x.at LIMIT at_most);
    GET DIAGNOSTICS events = ROW_COUNT;

    -- A draining host stays: it must not come back serving because it was away.
    DELETE FROM runner.host h WHERE h.name IN (
        SELECT x.name FROM runner.host x
        WHERE NOT x.draining AND greatest(x.last_seen, x.stopped_at) < now() - interval '7 days'
          AND NOT EXISTS (SELECT FROM runner.job j WHERE j.lease_expires_at IS NOT NULL AND j.lease_owner = x.name)
        LIMIT at_most FOR NO KEY UPDATE SKIP LOCKED);
    GET DIAGNOSTICS hosts = ROW_COUNT;

    -- Locked before it is looked at again, since somebody may be taking a turn by it right now.
    DELETE FROM runner.share s USING (
        SELECT x.user_id, x.gpu_type, x.priority
        FROM runner.share x JOIN runner.clock c ON c.gpu_type = x.gpu_type AND c.priority = x.priority
        WHERE x.next_turn <= c.turn
        LIMIT at_most FOR NO KEY UPDATE OF x SKIP LOCKED
    ) AS due
    WHERE s.user_id = due.user_id AND s.gpu_type = due.gpu_type AND s.priority = due.priority;
    GET DIAGNOSTICS shares = ROW_COUNT;
END
$$;

-- A line per submission. Of a key's jobs the line speaks of the open one, else of what counts or was invalidated.
CREATE OR REPLACE VIEW runner.status AS
SELECT s.id AS submission_id, l.name AS leaderboard, s.user_id, u.user_name, s.file_name, s.submission_time,
       jobs.modes, jobs.gpu_types, jobs.priority, jobs.state,
       -- From mildest to gravest. Accepted is a word about all of its jobs.
       CASE WHEN NOT jobs.open AND NOT (jobs.gravity = 1 AND jobs.partial) THEN
           (ARRAY['accepted', 'wrong_answer', 'time_limit', 'memory_limit', 'output_limit', 'runtime_error',
                  'compile_error', 'rejected', 'invalid', 'internal_error'])[jobs.gravity] END AS verdict,
       coalesce(s.done, false) AS done, t.status AS job_status, t.error,
       -- Each half is a range of job_claim_idx, and ordered, so that nothing but this index is a way to it. Counting ends at
       -- 1000: a long queue costs a status no more.
       (SELECT min(1 + ahead.jobs)
        FROM (SELECT DISTINCT ON (q.gpu_type) q.gpu_type, q.priority, q.turn, q.id
              -- OFFSET: found by the submission first, or the order could be had by walking the whole queue.
              FROM (SELECT o.* FROM runner.job o WHERE o.submission_id = s.id OFFSET 0) AS q
              WHERE q.state = 'queued'
              ORDER BY q.gpu_type, q.priority DESC, q.turn, q.id) AS w
        CROSS JOIN LATERAL (
            SELECT count(*) AS jobs FROM (
                (SELECT FROM runner.job b
                 WHERE b.state = 'queued' AND b.gpu_type = w.gpu_type AND b.priority > w.priority
                 ORDER BY b.priority DESC, b.turn, b.id LIMIT 1000)
                UNION ALL
                (SELECT FROM runner.job b
                 WHERE b.state = 'queued' AND b.gpu_type = w.gpu_type AND b.priority = w.priority
                   AND (b.turn, b.id) < (w.turn, w.id)
                 ORDER BY b.turn, b.id LIMIT 1000)
                LIMIT 1000
            ) AS first
        ) AS ahead) AS position,
       jobs.progress,
       -- As runner.valid_score has it, but by way of the jobs: leaderboard.runs has no index on the submission.
       (SELECT min(r.score)
        FROM (SELECT o.* FROM runner.job o WHERE o.submission_id = s.id OFFSET 0) AS a
        JOIN runner.job_run x ON x.job_id = a.id
        JOIN leaderboard.runs r ON r.id = x.run_id
        WHERE NOT r.secret AND r.score IS NOT NULL AND r.passed
          AND s.status IS DISTINCT FROM 'hacked' AND t.status IS DISTINCT FROM 'hacked'
          AND (SELECT bool_or(k.passed AND k.mode = 'leaderboard') AND bool_and(k.passed)
               FROM (SELECT o.* FROM runner.job o WHERE o.submission_id = s.id OFFSET 0) AS b
               JOIN runner.job_run y ON y.job_id = b.id
               JOIN leaderboard.runs k ON k.id = y.run_id
               WHERE b.secret AND k.runner = r.runner)) AS score,
       jobs.queue_ms, jobs.build_ms, jobs.eval_ms, jobs.started_at, jobs.finished_at, jobs.jobs,
       jobs.phase, jobs.attempts, jobs.retry_reason, jobs.retry_at, jobs.reruns, jobs.rerunning
FROM leaderboard.submission s
JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
JOIN leaderboard.user_info u ON u.id = s.user_id
LEFT JOIN leaderboard.submission_job_status t ON t.submission_id = s.id
CROSS JOIN LATERAL (
    SELECT bool_or(j.open) AS open,
           array_agg(DISTINCT j.mode) AS modes, array_agg(DISTINCT j.gpu_type) AS gpu_types,
           coalesce(max(j.priority) FILTER (WHERE j.open), max(j.priority)) AS priority,
           CASE
               WHEN bool_or(j.state = 'running') THEN 'running'
               WHEN bool_or(j.state = 'queued') THEN 'queued'
               -- What was not evaluated as a whole is not done, whatever its other jobs found.
               WHEN bool_or(j.current AND j.state = 'cancelled') THEN 'cancelled'
               ELSE 'done'
           END AS state,
           max(array_position(
               ARRAY['accepted', 'wrong_answer', 'time_limit', 'memory_limit', 'output_limit', 'runtime_error',
                     'compile_error', 'rejected', 'invalid', 'internal_error'], j.verdict))
               FILTER (WHERE j.current AND j.retired_at IS NULL) AS gravity,
           bool_or(j.current AND (j.state = 'cancelled' OR j.retired_at IS NOT NULL)) AS partial,
           jsonb_agg(j.progress || jsonb_build_object('gpu_type', j.gpu_type) ORDER BY j.id)
               FILTER (WHERE j.state = 'running' AND NOT j.secret AND j.progress IS NOT NULL) AS progress,
           (extract(epoch FROM min(coalesce(j.started_at, j.finished_at, now())) FILTER (WHERE j.current)
                               - min(j.created_at) FILTER (WHERE j.current)) * 1000)::bigint AS queue_ms,
           max(j.build_ms) FILTER (WHERE j.current) AS build_ms, max(j.eval_ms) FILTER (WHERE j.current) AS eval_ms,
           min(j.started_at) FILTER (WHERE j.current) AS started_at,
           CASE WHEN NOT bool_or(j.open) THEN max(j.finished_at) FILTER (WHERE j.current) END AS finished_at,
           jsonb_agg(jsonb_build_object(
               'id', j.id, 'gpu_type', j.gpu_type, 'mode', j.mode, 'secret', j.secret, 'state', j.state,
               'verdict', j.verdict, 'attempt', j.attempt, 'host', j.host,
               'error', CASE WHEN NOT j.secret THEN j.error END,
               'phase', j.phase, 'replaces', j.replaces, 'retired', j.retired_as, 'retired_reason', j.retired_reason
               ) ORDER BY j.id) AS jobs,
           CASE count(*) FILTER (WHERE j.leads)
               WHEN 1 THEN max(j.phase) FILTER (WHERE j.leads)
               ELSE string_agg(j.gpu_type || ': ' || j.phase, '; ' ORDER BY j.id) FILTER (WHERE j.leads)
           END AS phase,
           max(j.attempt) FILTER (WHERE j.current) AS attempts,
           (array_agg(
               CASE j.causes -> -1 ->> 'kind'
                   WHEN 'reclaim' THEN format('host %s stopped answering', j.causes -> -1 ->> 'host')
                   ELSE format('a fault of host %s, not of the submission', j.causes -> -1 ->> 'host')
               END ORDER BY j.causes -> -1 ->> 'at' DESC)
               FILTER (WHERE j.open AND j.causes <> '[]'))[1] AS retry_reason,
           min(j.not_before) FILTER (WHERE j.state = 'queued' AND j.not_before > now()) AS retry_at,
           max(j.reruns) AS reruns,
           bool_or(j.open AND j.replaces IS NOT NULL) AS rerunning
    FROM (
        SELECT o.*,
               o.open OR (NOT o.superseding AND (o.retired_at IS NULL OR o.retired_as = 'invalidated')) AS current,
               -- The job of an evaluation that tells most: the one that runs, the public one.
               o.open AND o.id = first_value(o.id) OVER (
                   PARTITION BY o.gpu_type, o.mode ORDER BY o.state = 'running' DESC, o.open DESC, o.secret, o.id
               ) AS leads,
               CASE
                   WHEN NOT o.open THEN NULL
                   WHEN o.cancel_requested THEN 'stopping'
                   WHEN o.state = 'queued' AND o.not_before > now() THEN 'queued to be tried again'
                   WHEN o.state = 'queued' THEN 'queued'
                   WHEN o.secret THEN 'secret run'
                   WHEN o.progress IS NULL THEN 'starting'
                   WHEN o.step IN ('build', 'compile', 'nvcc-version') THEN 'building'
                   WHEN o.step = o.mode AND o.step <> 'profile' AND o.total > 0 AND o.finished >= o.total THEN 'finishing'
                   ELSE CASE o.step
                       WHEN 'test' THEN 'testing'
                       WHEN 'benchmark' THEN 'benchmarking'
                       WHEN 'leaderboard' THEN 'ranked run'
                       WHEN 'profile' THEN 'profiling'
                       ELSE o.step
                   END || CASE
                       -- A profile is made case by case: its number stands in the name of the step, profile.0, .1 …
                       WHEN o.step = 'profile' THEN coalesce(
                           format(' case %s', substring(o.progress ->> 'phase' FROM '^profile\.(\d{1,6})$')::integer + 1), '')
                       WHEN o.total > 0 THEN format(' case %s of %s', least(o.finished + 1, o.total), o.total)
                       ELSE ''
                   END
               END AS phase
        FROM (
            SELECT j.*, j.state IN ('queued', 'running') AS open,
                   bool_or(j.state IN ('queued', 'running')) OVER one_key AS superseding,
                   count(j.replaces) OVER one_key AS reruns,
                   split_part(j.progress ->> 'phase', '.', 1) AS step,
                   -- Any daemon version may have written it.
                   CASE jsonb_typeof(j.progress -> 'done') WHEN 'number' THEN (j.progress -> 'done')::integer END AS finished,
                   CASE jsonb_typeof(j.progress -> 'total') WHEN 'number' THEN (j.progress -> 'total')::integer END AS total
            FROM runner.job j
            WHERE j.submission_id = s.id
            WINDOW one_key AS (PARTITION BY j.gpu_type, j.mode, j.secret)
        ) AS o
    ) AS j
    HAVING count(*) > 0
) AS jobs;
COMMENT ON VIEW runner.status IS 'A line per submission; times in milliseconds, score in seconds; verdict when all jobs are over.';

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA runner FROM PUBLIC;
