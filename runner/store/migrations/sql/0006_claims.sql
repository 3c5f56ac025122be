-- Submissions get turns; a claim, a heartbeat, a completion, a failure are one call and one round trip each.
--
-- Locks are taken in one order everywhere: user, submission, jobs by id, job statuses by submission, share, clock, host.
-- A claim and a heartbeat wait for no lock at all: what somebody holds is passed over, because a frontend's forgotten
-- transaction must not stop a host. Who holds several submissions (reclaim, recover) passes over those that are held.
--
-- Plans are kept for as long as a connection lives, so none may depend on how much there was when it was made:
--   * A job is looked up by its id alone and its state checked afterwards: with the state in the condition, a partial index
--     that happened to be empty would look cheaper.
--   * What several rows are joined to is looked up one by one (LATERAL with OFFSET 0) or also restricted by an array of
--     keys: walking a table that happened to be empty would look as cheap as either.
--   * Where order matters the planner is left no choice; and it never compiles.
--
-- What a daemon calls is SECURITY DEFINER: its role needs no right to write jobs and results past the fence.
--
-- No function that a daemon calls notifies: NOTIFY holds a lock of the whole cluster while its transaction commits. The
-- daemon announces afterwards what it did.

ALTER TABLE runner.clock
    ADD COLUMN since_id bigint NOT NULL DEFAULT 0,
    ADD COLUMN rounds integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN runner.clock.since_id IS 'Jobs above it came since the turn, or the last round of newcomers in it, began.';
COMMENT ON COLUMN runner.clock.rounds IS 'Rounds of newcomers since the turn began; from the second on, others are served too.';

-- What has been waiting since before there were turns gets them in its order, or a long queue of one user would be ahead of
-- everybody who comes now.
UPDATE runner.job j SET turn = w.turn
FROM (SELECT q.id, dense_rank() OVER (PARTITION BY q.user_id, q.gpu_type, q.priority ORDER BY q.submission_id, q.mode) - 1
          AS turn
      FROM runner.job q WHERE q.state = 'queued') AS w
WHERE j.id = w.id AND w.turn > 0;
INSERT INTO runner.share (user_id, gpu_type, priority, next_turn)
SELECT j.user_id, j.gpu_type, j.priority, max(j.turn) + 1 FROM runner.job j WHERE j.state = 'queued'
GROUP BY j.user_id, j.gpu_type, j.priority
ON CONFLICT DO NOTHING;

-- By what it is searched for, not by the state: a plan that was made when nothing ran would take it for the shortest way
-- to any running job, and be kept when thousands run.
DROP INDEX runner.job_lease_idx;
CREATE INDEX job_lease_idx ON runner.job (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
-- Every job is written anew by its claim and by its end, and what is dead lies where the next claim looks: it is removed
-- after thousands of jobs, not after a fifth of all there ever were. Heartbeats' and progress's writes stay on their page.
ALTER TABLE runner.job SET (
    fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 1000);
CREATE INDEX job_reserved_idx ON runner.job (reserved_by) WHERE state = 'queued' AND reserved_by IS NOT NULL;

-- ---------------------------------------------------------------------------------------------------------------------
-- Submitting

-- Characters that could disturb a terminal or a log: control characters, line separators, bidirectional overrides.
CREATE FUNCTION runner.is_odd(value text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce(value ~ '[\x01-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]', false);
END
$$;

CREATE FUNCTION runner.check_priority(priority integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF priority NOT BETWEEN -1000 AND 1000 THEN
        PERFORM runner.refuse('KR022', format('priority %s is out of range', priority), 'Choose one from -1000 to 1000.');
    END IF;
END
$$;

-- Takes `count` consecutive turns for a user in a class (GPU type, priority) and returns the first of them: the virtual
-- time of the class, or where the user's own earlier submissions end, whichever is later. The one place with this rule.
CREATE FUNCTION runner.take_turns(user_id text, gpu_type text, priority integer, count integer DEFAULT 1) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_clock bigint;
    v_next bigint;
BEGIN
    SELECT c.turn INTO v_clock FROM runner.clock c
    WHERE c.gpu_type = take_turns.gpu_type AND c.priority = take_turns.priority;
    INSERT INTO runner.share AS s (user_id, gpu_type, priority, next_turn)
    VALUES (take_turns.user_id, take_turns.gpu_type, take_turns.priority, coalesce(v_clock, 0) + take_turns.count)
    ON CONFLICT (user_id, gpu_type, priority) DO UPDATE
    SET next_turn = greatest(s.next_turn + take_turns.count, EXCLUDED.next_turn)
    RETURNING s.next_turn INTO v_next;
    RETURN v_next - take_turns.count;
END
$$;

-- Calls those daemons on a channel whom the names, separated by commas, concern. A payload has at most 8000 bytes; an
-- empty one calls everybody.
CREATE FUNCTION runner.call(channel text, names text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify(channel, CASE WHEN octet_length(names) < 7900 THEN names ELSE '' END);
END
$$;

-- Adds the jobs, marks the submission as waiting and wakes the daemons. The caller holds the submission's row.
CREATE OR REPLACE FUNCTION runner.add_jobs(submission_id integer, mode text, gpu_types text[], priority integer)
RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_priority integer := coalesce(add_jobs.priority, 0);
    v_user_id text;
    v_added integer;
BEGIN
    PERFORM runner.check_priority(v_priority);
    SELECT s.user_id INTO STRICT v_user_id FROM leaderboard.submission s WHERE s.id = add_jobs.submission_id;

    INSERT INTO runner.job (submission_id, user_id, gpu_type, mode, secret, priority, turn)
    SELECT add_jobs.submission_id, v_user_id, g.name, add_jobs.mode, s.secret, v_priority, g.turn
    FROM (
        -- Shares are locked in one order everywhere.
        SELECT w.name, w.number, runner.take_turns(v_user_id, w.name, v_priority) AS turn
        FROM unnest(add_jobs.gpu_types) WITH ORDINALITY AS w (name, number)
        ORDER BY w.name COLLATE "C"
    ) AS g
    CROSS JOIN unnest(CASE add_jobs.mode
        WHEN 'leaderboard' THEN ARRAY[false, true]
        WHEN 'private' THEN ARRAY[true]
        ELSE ARRAY[false]
    END) AS s (secret)
    ORDER BY g.number, s.secret;
    GET DIAGNOSTICS v_added = ROW_COUNT;

    INSERT INTO leaderboard.submission_job_status AS j (submission_id, status)
    VALUES (add_jobs.submission_id, 'pending')
    ON CONFLICT (submission_id) DO UPDATE SET status = 'pending' WHERE j.status IS DISTINCT FROM 'running';

    PERFORM runner.call('runner_queue', array_to_string(add_jobs.gpu_types, ','));
    RETURN v_added;
END
$$;

-- The one way in: validates, stores user, code, submission and jobs, wakes the daemons; returns the submission's id.
-- SECURITY DEFINER: a frontend's role needs no right on any table.
CREATE OR REPLACE FUNCTION runner.submit(
    leaderboard text,
    user_id text,
    file_name text,
    code bytea,
    mode text,
    gpu_types text[] DEFAULT NULL,
    user_name text DEFAULT NULL,
    priority integer DEFAULT 0,
    idempotency_key text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_category text := CASE submit.mode WHEN 'leaderboard' THEN 'leaderboard' ELSE 'test' END;
    v_hash text;
    v_known record;
    v_source text;
    v_directives record;
    v_board_name text;
    v_board record;
    v_gpu_types text[];
    v_banned boolean;
    v_limit integer;
    v_recent integer;
    v_code_id integer;
    v_submission_id integer;
BEGIN
    IF coalesce(btrim(submit.user_id), '') = '' OR length(submit.user_id) > 255 OR runner.is_odd(submit.user_id) THEN
        PERFORM runner.refuse('KR010', 'a user id has 1 to 255 characters, none of them a control character',
            'Log in again.');
    END IF;
    IF length(submit.user_name) > 255 OR runner.is_odd(submit.user_name) THEN
        PERFORM runner.refuse('KR010', 'a user name has at most 255 characters, none of them a control character',
            'Choose another one.');
    END IF;
    -- An index entry, so never longer than a third of a page.
    IF length(submit.idempotency_key) NOT BETWEEN 1 AND 255 OR runner.is_odd(submit.idempotency_key) THEN
        PERFORM runner.refuse('KR014', 'an idempotency key has 1 to 255 characters, none of them a control character',
            'Use a random identifier, or none.');
    END IF;
    PERFORM runner.check_priority(submit.priority);

    -- Also locks the user's row, so that a user's submissions pass one by one: keys and rate limits need it.
    INSERT INTO leaderboard.user_info AS u (id, user_name) VALUES (submit.user_id, submit.user_name)
    ON CONFLICT (id) DO UPDATE SET user_name = EXCLUDED.user_name
        WHERE EXCLUDED.user_name IS NOT NULL AND u.user_name IS DISTINCT FROM EXCLUDED.user_name;

    IF submit.idempotency_key IS NOT NULL THEN
        v_hash := encode(sha256(convert_to(jsonb_build_array(
            submit.leaderboard, submit.file_name, encode(sha256(submit.code), 'hex'), submit.mode,
            to_jsonb(submit.gpu_types), submit.priority
        )::text, 'UTF8')), 'hex');
        SELECT i.submission_id, i.payload_hash INTO v_known
        FROM runner.idempotency i WHERE i.user_id = submit.user_id AND i.key = submit.idempotency_key;
        IF FOUND THEN
            IF v_known.payload_hash <> v_hash THEN
                PERFORM runner.refuse('KR014',
                    format('idempotency key %L was used for submission %s with other content',
                           submit.idempotency_key, v_known.submission_id),
                    'Use a new key for a new submission.');
            END IF;
            RETURN v_known.submission_id;
        END IF;
    END IF;

    SELECT u.is_banned INTO v_banned FROM leaderboard.user_info u WHERE u.id = submit.user_id;
    IF v_banned THEN
        PERFORM runner.refuse('KR010', format('user %L is banned', submit.user_id), 'Ask an administrator.');
    END IF;

    PERFORM runner.check_mode(submit.mode);
    -- 'x.py', not '.py'; nothing that could be a path or disturb a terminal.
    IF submit.file_name IS NULL OR length(submit.file_name) > 255 OR runner.is_odd(submit.file_name)
       OR submit.file_name !~ '^[^/\\]+\.(py|cuh?|cpp)$' THEN
        PERFORM runner.refuse('KR008', format('bad file name %L', left(submit.file_name, 300)),
            'A file name ends in .py, .cu, .cuh or .cpp, has at most 255 characters and no path or control characters.');
    END IF;
    v_source := runner.check_source(submit.code);

    SELECT * INTO v_directives FROM runner.parse_directives(v_source);
    IF submit.leaderboard <> v_directives.leaderboard THEN
        PERFORM runner.refuse('KR009',
            format('submitted to leaderboard %L, but the file says %L', submit.leaderboard, v_directives.leaderboard),
            'Change the #!POPCORN leaderboard line, or leave the leaderboard to it.');
    END IF;
    v_board_name := coalesce(submit.leaderboard, v_directives.leaderboard);
    IF v_board_name IS NULL THEN
        PERFORM runner.refuse('KR001', 'no leaderboard named', 'Name one, or put "#!POPCORN leaderboard NAME" into the file.');
    END IF;
    SELECT l.id, l.deadline, l.visibility INTO v_board FROM leaderboard.leaderboard l WHERE l.name = v_board_name;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR001', format('leaderboard %L does not exist', v_board_name), 'Look at the list of leaderboards.');
    END IF;
    IF v_board.deadline < now() THEN
        PERFORM runner.refuse('KR002',
            format('leaderboard %L closed at %s UTC', v_board_name,
                   to_char(v_board.deadline AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')),
            'Its deadline has passed.');
    END IF;
    IF v_board.visibility <> 'public' AND NOT EXISTS (
        SELECT FROM leaderboard.leaderboard_invite i
        JOIN leaderboard.leaderboard_invite_scope s ON s.invite_id = i.id
        WHERE i.user_id = submit.user_id AND s.leaderboard_id = v_board.id
    ) THEN
        PERFORM runner.refuse('KR012', format('leaderboard %L is by invitation', v_board_name), 'Claim an invitation first.');
    END IF;
    v_gpu_types := runner.choose_gpu_types(v_board.id, submit.gpu_types, v_directives.gpu_types);

    SELECT r.max_submissions_per_hour INTO v_limit
    FROM leaderboard.rate_limit r WHERE r.leaderboard_id = v_board.id AND r.mode_category = v_category;
    IF FOUND THEN
        SELECT count(*) INTO v_recent
        FROM leaderboard.submission s
        WHERE s.leaderboard_id = v_board.id AND s.user_id = submit.user_id AND s.mode_category = v_category
          AND s.submission_time > now() - interval '1 hour';
        IF v_recent >= v_limit THEN
            PERFORM runner.refuse('KR013',
                format('%s of %s %s submissions an hour to leaderboard %L are used', v_recent, v_limit, v_category, v_board_name),
                'Wait until the oldest of them is an hour old.');
        END IF;
    END IF;

    INSERT INTO leaderboard.code_files (code) VALUES (submit.code)
    ON CONFLICT (hash) DO NOTHING RETURNING id INTO v_code_id;
    IF v_code_id IS NULL THEN
        SELECT c.id INTO STRICT v_code_id FROM leaderboard.code_files c WHERE c.hash = encode(sha256(submit.code), 'hex');
    END IF;

    INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time, done, mode_category)
    VALUES (v_board.id, submit.file_name, submit.user_id, v_code_id, now(), false, v_category)
    RETURNING id INTO v_submission_id;

    IF submit.idempotency_key IS NOT NULL THEN
        INSERT INTO runner.idempotency (user_id, key, payload_hash, submission_id)
        VALUES (submit.user_id, submit.idempotency_key, v_hash, v_submission_id);
    END IF;

    PERFORM runner.add_jobs(v_submission_id, submit.mode, v_gpu_types, submit.priority);
    RETURN v_submission_id;
END
$$;

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
    RETURN runner.add_jobs(v_submission.id, enqueue.mode, v_gpu_types, enqueue.priority);
END
$$;

-- ---------------------------------------------------------------------------------------------------------------------
-- Claims and leases

-- Moves the virtual time of a class to the highest turn claimed (NULL: only a new round of newcomers begins). While
-- somebody else does the same it lags a little.
CREATE FUNCTION runner.advance_clock(gpu_type text, priority integer, turn bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_since_id bigint;
BEGIN
    SELECT q.last_value INTO v_since_id FROM runner.job_id_seq q;
    UPDATE runner.clock c
    SET turn = greatest(c.turn, advance_clock.turn), since_id = v_since_id,
        rounds = CASE WHEN advance_clock.turn > c.turn THEN 0 ELSE c.rounds + 1 END
    FROM (SELECT k.gpu_type, k.priority FROM runner.clock k
          WHERE k.gpu_type = advance_clock.gpu_type AND k.priority = advance_clock.priority
          FOR NO KEY UPDATE SKIP LOCKED) AS free
    WHERE c.gpu_type = free.gpu_type AND c.priority = free.priority;
    -- ON CONFLICT alone would wait for whoever is moving it.
    IF NOT FOUND AND NOT EXISTS (SELECT FROM runner.clock c WHERE c.gpu_type = advance_clock.gpu_type
                                 AND c.priority = advance_clock.priority) THEN
        INSERT INTO runner.clock (gpu_type, priority, turn, since_id)
        VALUES (advance_clock.gpu_type, advance_clock.priority, advance_clock.turn, v_since_id)
        ON CONFLICT DO NOTHING;
    END IF;
END
$$;

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
    host text, gpu_types text[], free integer[], lease_s double precision, at_most integer DEFAULT NULL
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
           h.last_seen < now() - interval '10 seconds' AS silent
    INTO v_host FROM runner.host h WHERE h.name = claim.host;
    draining := coalesce(v_host.draining, false);
    drain_reason := v_host.drain_reason;
    registered := coalesce(v_host.registered, false);
    overdue := EXISTS (SELECT FROM runner.job j WHERE j.lease_expires_at < now());
    IF v_host.silent THEN
        SELECT count(*) INTO rivals FROM runner.host h
        WHERE h.gpu_types && v_host.gpu_types AND NOT h.draining AND h.stopped_at IS NULL
          AND (h.last_seen > now() - interval '60 seconds' OR h.name = claim.host);
    END IF;

    IF NOT draining THEN
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
    IF v_host.silent THEN
        UPDATE runner.host t SET last_seen = now()
        FROM (SELECT h.name FROM runner.host h WHERE h.name = claim.host FOR NO KEY UPDATE SKIP LOCKED) AS free
        WHERE t.name = free.name;
    END IF;
END
$$;

-- Shows submissions as running and alive to readers of KernelBot's table. A row that somebody is writing right now is
-- passed over: the next heartbeat makes up for it.
CREATE FUNCTION runner.show_running(submission_ids integer[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE leaderboard.submission_job_status t SET status = 'running', last_heartbeat = now()
    FROM unnest(show_running.submission_ids) AS u (id)
    CROSS JOIN LATERAL (
        SELECT k.id FROM leaderboard.submission_job_status k
        WHERE k.submission_id = u.id AND k.status IN ('pending', 'running')
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS live
    WHERE t.id = live.id AND t.submission_id = ANY (show_running.submission_ids);
END
$$;

-- Renews the leases that are still the host's and says which are not. A job that somebody is writing right now keeps its
-- lease as it is until the next heartbeat.
CREATE FUNCTION runner.heartbeat(host text, lease_s double precision, ids bigint[], attempts integer[])
RETURNS TABLE (job_id bigint, attempt integer, ours boolean, cancel_requested boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_submission_ids integer[];
BEGIN
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

-- Keeps devices free for the best job of these GPU types that is due: its priority is above all that waits for the smaller
-- types, whose jobs would run on its devices meanwhile, or it is not below and has waited long enough. A job that another
-- live host keeps devices free for is passed over. The host's own reservation is renewed first. Returns the job's GPU type.
CREATE FUNCTION runner.reserve(
    host text, gpu_types text[], smaller text[], waited_s double precision, hold_s double precision
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_above integer;
    v_job record;
    v_state text;
BEGIN
    SELECT max(best.priority) INTO v_above
    FROM unnest(reserve.smaller) AS t (gpu_type)
    CROSS JOIN LATERAL (
        SELECT q.priority FROM runner.job q WHERE q.state = 'queued' AND q.gpu_type = t.gpu_type
        ORDER BY q.priority DESC, q.turn, q.id LIMIT 1
    ) AS best;

    FOR v_job IN
        SELECT own.id, own.gpu_type, true AS own, own.priority
        FROM (
            SELECT q.id, q.gpu_type, q.priority FROM runner.job q
            WHERE q.state = 'queued' AND q.reserved_by = reserve.host AND q.gpu_type = ANY (reserve.gpu_types)
              AND (v_above IS NULL OR q.priority >= v_above)
        ) AS own
        UNION ALL
        SELECT w.id, w.gpu_type, false, w.priority
        FROM unnest(reserve.gpu_types) AS t (gpu_type)
        CROSS JOIN LATERAL (
            SELECT q.id, q.gpu_type, q.priority, q.created_at, q.reserved_by, q.reserved_until
            FROM runner.job q
            WHERE q.state = 'queued' AND q.gpu_type = t.gpu_type
              AND (q.not_before IS NULL OR q.not_before <= now())
              AND (q.avoid_until IS NULL OR q.avoid_until <= now() OR q.avoid_host <> reserve.host
                   OR q.avoid_slot IS NOT NULL)
            ORDER BY q.priority DESC, q.turn, q.id
            -- Who is further down is not due before them.
            LIMIT 100
        ) AS w
        WHERE (w.priority > v_above OR (v_above IS NULL OR w.priority = v_above)
                                       AND w.created_at <= now() - reserve.waited_s * interval '1 second')
          AND w.reserved_by IS DISTINCT FROM reserve.host
          AND NOT EXISTS (
              SELECT FROM runner.host h
              WHERE h.name = w.reserved_by AND w.reserved_until > now() AND h.stopped_at IS NULL AND NOT h.draining
                AND h.last_seen > now() - interval '60 seconds')
        ORDER BY 3 DESC, 4 DESC, 1
    LOOP
        SELECT q.state INTO v_state FROM runner.job q WHERE q.id = v_job.id FOR NO KEY UPDATE SKIP LOCKED;
        IF v_state = 'queued' THEN
            UPDATE runner.job j
            SET reserved_by = reserve.host, reserved_until = now() + reserve.hold_s * interval '1 second'
            WHERE j.id = v_job.id;
            RETURN v_job.gpu_type;
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

-- ---------------------------------------------------------------------------------------------------------------------
-- Results

-- What follows when a job is no longer running: the submission's final words if it was the last, else the submission
-- waits again if nothing of it runs. True: it is finished. The caller holds the submission's row.
CREATE FUNCTION runner.after_attempt(submission_id integer, over boolean) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF over AND runner.settle(after_attempt.submission_id) THEN
        RETURN true;
    END IF;
    UPDATE leaderboard.submission_job_status t SET status = 'pending'
    WHERE t.submission_id = after_attempt.submission_id AND t.status = 'running'
      AND NOT EXISTS (SELECT FROM runner.job j
                      WHERE j.submission_id = after_attempt.submission_id AND j.state = 'running');
    RETURN false;
END
$$;

-- Commits what attempts found, each if it is still the claimer's; one row of answer per result, in the order given.
-- Outcomes: `committed`; `repeated`, because only the holder of an attempt can end it with a verdict, so that an answer was
-- lost; `stale`, with what has become of the job, and the result kept as evidence; `busy`, for one of several whose
-- submission somebody holds: the caller gives it again alone, which waits.
CREATE FUNCTION runner.complete(results jsonb)
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
        FROM jsonb_to_recordset(complete.results) AS r (
            job_id bigint, attempt integer, verdict text, error text, report jsonb, build_ms bigint, eval_ms bigint)
        WHERE j.id = r.job_id AND j.attempt = r.attempt AND j.id = ANY (v_committed);

        WITH found AS MATERIALIZED (
            SELECT row_number() OVER (ORDER BY r.number, x.number) AS number, j.id AS job_id, j.submission_id,
                   j.started_at, j.secret, j.gpu_type, x.mode, x.start_us, x.end_us, x.score_s, x.passed,
                   x.compilation, x.meta, x.result, x.system_info
            FROM ROWS FROM (jsonb_to_recordset(complete.results) AS (job_id bigint, attempt integer, runs jsonb))
                WITH ORDINALITY AS r (job_id, attempt, runs, number)
            CROSS JOIN LATERAL (SELECT * FROM runner.job j WHERE j.id = r.job_id OFFSET 0) AS j
            CROSS JOIN ROWS FROM (jsonb_to_recordset(r.runs) AS (
                mode text, start_us bigint, end_us bigint, score_s numeric, passed boolean, compilation jsonb,
                meta jsonb, result jsonb, system_info jsonb
            )) WITH ORDINALITY AS x (mode, start_us, end_us, score_s, passed, compilation, meta, result, system_info,
                                     number)
            WHERE r.job_id = ANY (v_committed) AND j.attempt = r.attempt
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

-- The causes with one more, at most the last twenty of them.
CREATE FUNCTION runner.with_cause(causes jsonb, cause jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE WHEN jsonb_array_length(causes) >= 20 THEN causes - 0 ELSE causes END || jsonb_build_array(cause);
END
$$;

-- An infrastructure failure of a slot: back to the queue after a pause that doubles, or the end. Another host shall try
-- next if one that is alive serves the GPU type, else another slot of this one. State NULL: the attempt was over before,
-- see what has become of the job.
CREATE FUNCTION runner.fail(
    job_id bigint, attempt integer, submission_id integer, slot text, error text, report jsonb,
    backoff_s double precision, backoff_max_s double precision,
    OUT state text, OUT submission_done boolean, OUT state_now text, OUT attempt_now integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
    v_elsewhere boolean;
    v_not_before timestamptz;
    v_error text := fail.error;
BEGIN
    PERFORM FROM leaderboard.submission s WHERE s.id = fail.submission_id FOR NO KEY UPDATE;
    SELECT j.state, j.attempt, j.gpu_type, j.failures, j.max_attempts, j.cancel_requested, j.lease_owner INTO v_job
    FROM runner.job j WHERE j.id = fail.job_id FOR NO KEY UPDATE;
    state_now := v_job.state;
    attempt_now := v_job.attempt;
    IF state_now IS DISTINCT FROM 'running' OR attempt_now <> fail.attempt THEN
        RETURN;
    END IF;
    state := CASE WHEN v_job.cancel_requested THEN 'cancelled'
                  WHEN v_job.failures + 1 < v_job.max_attempts THEN 'queued' ELSE 'done' END;
    IF state = 'queued' THEN
        v_not_before := now() + least(backoff_s * 2 ^ v_job.failures, backoff_max_s) * interval '1 second';
        v_elsewhere := EXISTS (
            SELECT FROM runner.host h
            WHERE h.name <> v_job.lease_owner AND NOT h.draining AND h.stopped_at IS NULL
              AND h.last_seen > now() - interval '60 seconds' AND v_job.gpu_type = ANY (h.gpu_types));
    ELSIF state = 'done' THEN
        v_error := format('failed %s times through no fault of the submission, at last on %s, slot %s: %s',
                          v_job.failures + 1, v_job.lease_owner, fail.slot, fail.error);
    END IF;
    UPDATE runner.job j
    SET state = fail.state, failures = j.failures + 1, slot = fail.slot, error = v_error, report = fail.report,
        lease_owner = NULL, lease_expires_at = NULL, progress = NULL,
        verdict = CASE fail.state WHEN 'done' THEN 'internal_error' END,
        finished_at = CASE WHEN fail.state <> 'queued' THEN now() END,
        not_before = v_not_before,
        avoid_host = CASE fail.state WHEN 'queued' THEN j.lease_owner END,
        avoid_slot = CASE WHEN fail.state = 'queued' AND NOT v_elsewhere THEN fail.slot END,
        avoid_until = CASE WHEN fail.state = 'queued' AND v_elsewhere THEN v_not_before + interval '60 seconds' END,
        causes = runner.with_cause(j.causes, jsonb_build_object(
            'attempt', j.attempt, 'host', j.lease_owner, 'slot', fail.slot, 'kind', 'fail', 'error', fail.error,
            'at', now()))
    WHERE j.id = fail.job_id;
    INSERT INTO runner.event (kind, submission_id, job_id, attempt, host, detail)
    VALUES ('failed', fail.submission_id, fail.job_id, fail.attempt, v_job.lease_owner, jsonb_build_object(
        'slot', fail.slot, 'error', fail.error, 'state', fail.state));
    submission_done := runner.after_attempt(fail.submission_id, state <> 'queued');
END
$$;

-- Back to the queue at no cost, or cancelled if that was asked for meanwhile. State NULL: the attempt was over before.
CREATE FUNCTION runner.release(
    job_id bigint, attempt integer, submission_id integer, reason text,
    OUT state text, OUT submission_done boolean, OUT state_now text, OUT attempt_now integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
BEGIN
    PERFORM FROM leaderboard.submission s WHERE s.id = release.submission_id FOR NO KEY UPDATE;
    SELECT j.state, j.attempt, j.cancel_requested, j.lease_owner INTO v_job
    FROM runner.job j WHERE j.id = release.job_id FOR NO KEY UPDATE;
    state_now := v_job.state;
    attempt_now := v_job.attempt;
    IF state_now IS DISTINCT FROM 'running' OR attempt_now <> release.attempt THEN
        RETURN;
    END IF;
    state := CASE WHEN v_job.cancel_requested THEN 'cancelled' ELSE 'queued' END;
    UPDATE runner.job j
    SET state = release.state, finished_at = CASE release.state WHEN 'cancelled' THEN now() END, lease_owner = NULL,
        lease_expires_at = NULL, progress = NULL, error = release.reason
    WHERE j.id = release.job_id;
    INSERT INTO runner.event (kind, submission_id, job_id, attempt, host, detail)
    VALUES ('released', release.submission_id, release.job_id, release.attempt, v_job.lease_owner, jsonb_build_object(
        'reason', release.reason, 'state', release.state));
    submission_done := runner.after_attempt(release.submission_id, state <> 'queued');
END
$$;

-- A running job has stopped because that was asked for. State NULL: the attempt was over before.
CREATE FUNCTION runner.stopped(
    job_id bigint, attempt integer, submission_id integer,
    OUT state text, OUT submission_done boolean, OUT state_now text, OUT attempt_now integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM leaderboard.submission s WHERE s.id = stopped.submission_id FOR NO KEY UPDATE;
    SELECT j.state, j.attempt INTO state_now, attempt_now
    FROM runner.job j WHERE j.id = stopped.job_id FOR NO KEY UPDATE;
    IF state_now IS DISTINCT FROM 'running' OR attempt_now <> stopped.attempt THEN
        RETURN;
    END IF;
    state := 'cancelled';
    UPDATE runner.job j
    SET state = stopped.state, cancel_requested = true, finished_at = now(), lease_owner = NULL,
        lease_expires_at = NULL, progress = NULL
    WHERE j.id = stopped.job_id;
    submission_done := runner.after_attempt(stopped.submission_id, true);
END
$$;

-- Ends an attempt whose daemon did not live to end it. That is no failure, but a job whose daemons keep vanishing must end
-- some day. The caller holds the submission and the job, which runs.
CREATE FUNCTION runner.take_back(
    job_id bigint, reason text, max_reclaims integer, OUT state text, OUT submission_done boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
BEGIN
    SELECT j.* INTO v_job FROM runner.job j WHERE j.id = take_back.job_id;
    state := CASE WHEN v_job.cancel_requested THEN 'cancelled'
                  WHEN v_job.reclaims + 1 < take_back.max_reclaims THEN 'queued' ELSE 'done' END;
    UPDATE runner.job j
    SET state = take_back.state, reclaims = j.reclaims + 1, lease_owner = NULL, lease_expires_at = NULL,
        progress = NULL,
        verdict = CASE take_back.state WHEN 'done' THEN 'internal_error' END,
        finished_at = CASE WHEN take_back.state <> 'queued' THEN now() END,
        error = CASE take_back.state
            WHEN 'done' THEN format('%s leases were lost, at last because %s', j.reclaims + 1, take_back.reason)
            ELSE take_back.reason END,
        causes = runner.with_cause(j.causes, jsonb_build_object(
            'attempt', j.attempt, 'host', j.lease_owner, 'slot', NULL, 'kind', 'reclaim', 'error', take_back.reason,
            'at', now()))
    WHERE j.id = take_back.job_id;
    INSERT INTO runner.event (kind, submission_id, job_id, attempt, host, detail)
    VALUES ('reclaimed', v_job.submission_id, v_job.id, v_job.attempt, v_job.lease_owner, jsonb_build_object(
        'state', take_back.state));
    submission_done := runner.after_attempt(v_job.submission_id, state <> 'queued');
END
$$;

-- Takes expired leases back.
CREATE FUNCTION runner.reclaim(max_reclaims integer, at_most integer DEFAULT 100)
RETURNS TABLE (job_id bigint, submission_id integer, gpu_type text, secret boolean, state text, submission_done boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_expired record;
    v_job record;
BEGIN
    FOR v_expired IN
        SELECT e.id, e.submission_id
        FROM (SELECT j.id, j.submission_id FROM runner.job j
              WHERE j.lease_expires_at < now()
              ORDER BY j.lease_expires_at LIMIT reclaim.at_most) AS e
        ORDER BY e.submission_id, e.id
    LOOP
        PERFORM FROM leaderboard.submission s WHERE s.id = v_expired.submission_id FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        SELECT j.* INTO v_job FROM runner.job j WHERE j.id = v_expired.id FOR NO KEY UPDATE SKIP LOCKED;
        -- Renewed, claimed anew or over since.
        CONTINUE WHEN (v_job.lease_expires_at < now()) IS NOT TRUE;
        SELECT b.state, b.submission_done INTO state, submission_done
        FROM runner.take_back(
            v_job.id, format('host %s did not renew its lease', v_job.lease_owner), reclaim.max_reclaims) AS b;
        job_id := v_job.id;
        submission_id := v_job.submission_id;
        gpu_type := v_job.gpu_type;
        secret := v_job.secret;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Takes back whatever runs in a host's name but the jobs it names; returns how many. With `max_reclaims` their process has
-- died, maybe of them, and it counts like a lost lease; without, a claim was not answered, and it costs nothing. What
-- somebody holds right now is left to its lease.
CREATE FUNCTION runner.recover(host text, ids bigint[], attempts integer[], max_reclaims integer DEFAULT NULL)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
    v_state text;
    v_recovered integer := 0;
BEGIN
    FOR v_job IN
        SELECT j.id, j.submission_id, j.attempt FROM runner.job j
        WHERE j.lease_expires_at IS NOT NULL AND j.lease_owner = recover.host
          AND NOT EXISTS (SELECT FROM unnest(recover.ids, recover.attempts) AS k (id, attempt)
                          WHERE k.id = j.id AND k.attempt = j.attempt)
        ORDER BY j.submission_id, j.id
    LOOP
        PERFORM FROM leaderboard.submission s WHERE s.id = v_job.submission_id FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        IF recover.max_reclaims IS NULL THEN
            SELECT r.state INTO v_state FROM runner.release(
                v_job.id, v_job.attempt, v_job.submission_id, format('host %s knew nothing of it', recover.host)) AS r;
            CONTINUE WHEN v_state IS NULL;
        ELSE
            PERFORM FROM runner.job j
            WHERE j.id = v_job.id AND j.attempt = v_job.attempt AND j.lease_owner = recover.host FOR NO KEY UPDATE;
            CONTINUE WHEN NOT FOUND;
            PERFORM runner.take_back(
                v_job.id, format('host %s was started again', recover.host), recover.max_reclaims);
        END IF;
        v_recovered := v_recovered + 1;
    END LOOP;
    RETURN v_recovered;
END
$$;

-- ---------------------------------------------------------------------------------------------------------------------
-- Cancelling

-- Cancels what waits, asks what runs to stop; returns how many jobs that were. Calls the daemons of what runs, which tell
-- frontends when it has stopped; if nothing runs, tells frontends itself.
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
