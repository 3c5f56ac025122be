-- The functions frontends call (submit, enqueue, cancel) and the ones they stand on.
--
-- Locks are always taken in one order: user, submission, job, job status. Rows are locked FOR NO KEY UPDATE, because
-- FOR UPDATE would wait for the foreign-key checks of others.
--
-- Errors have SQLSTATEs of class KR (docs/frontends.md lists them); message and hint may be shown to the user.

-- One error of ours; never returns.
CREATE FUNCTION runner.refuse(code text, message text, hint text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = refuse.code, MESSAGE = refuse.message, HINT = refuse.hint;
END
$$;

-- The directives in the leading comment lines of a source file, the only place that understands them.
CREATE FUNCTION runner.parse_directives(source text, OUT leaderboard text, OUT gpu_types text[])
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    head text := substring(source FROM '^(?:(?:#|//)[^\r\n]*(?:\r\n|\r|\n|$))+');
    line text;
    words text[];
    keyword text;
BEGIN
    IF head IS NULL OR position('!POPCORN' IN head) = 0 THEN
        RETURN;
    END IF;
    FOR line IN SELECT t.line FROM regexp_split_to_table(head, '\r\n|\r|\n') AS t (line) LOOP
        words := regexp_split_to_array(btrim(line, E' \t\f\v'), '\s+');
        CONTINUE WHEN words[1] NOT IN ('#!POPCORN', '//!POPCORN');
        keyword := lower(words[2]);
        IF keyword IS NULL OR keyword NOT IN ('leaderboard', 'gpu', 'gpus') THEN
            PERFORM runner.refuse('KR009', format('unknown directive %L', left(line, 200)),
                'Write "#!POPCORN leaderboard NAME" or "#!POPCORN gpus A B", with // in place of # in C++ and CUDA.');
        ELSIF words[3] IS NULL THEN
            PERFORM runner.refuse('KR009', format('directive %L names nothing', left(line, 200)),
                'Write a name after the keyword, or remove the line.');
        ELSIF keyword = 'leaderboard' THEN
            IF parse_directives.leaderboard IS NOT NULL THEN
                PERFORM runner.refuse('KR009', 'two leaderboard directives', 'Keep one of them.');
            END IF;
            parse_directives.leaderboard := words[3];
        ELSE
            IF parse_directives.gpu_types IS NOT NULL THEN
                PERFORM runner.refuse('KR009', 'two gpu directives', 'Name all GPU types in one line.');
            END IF;
            parse_directives.gpu_types := words[3:];
        END IF;
    END LOOP;
END
$$;

-- The source text of a submission, or the reason why it is none.
CREATE FUNCTION runner.check_source(code bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    size_bytes integer := coalesce(octet_length(code), 0);
BEGIN
    IF size_bytes = 0 OR size_bytes > 1000000 THEN
        PERFORM runner.refuse('KR006', format('the file has %s bytes, expected 1 to 1000000', size_bytes),
            CASE size_bytes WHEN 0 THEN 'The file is empty.' ELSE 'Submit one source file without embedded data.' END);
    END IF;
    IF position('\x00'::bytea IN code) > 0 THEN
        PERFORM runner.refuse('KR007', format('the file has a NUL byte at offset %s', position('\x00'::bytea IN code) - 1),
            'Submit source text in UTF-8, not a compiled file.');
    END IF;
    BEGIN
        RETURN convert_from(code, 'UTF8');
    EXCEPTION WHEN character_not_in_repertoire THEN
        PERFORM runner.refuse('KR007', format('the file is not UTF-8: %s', SQLERRM), 'Save it as UTF-8 and submit it again.');
    END;
END
$$;

-- The board's own names for the GPU types asked for: exact, or by name or alias of the registry, or in other case.
-- Without a wish: the file's directive, else the board's only type.
CREATE FUNCTION runner.choose_gpu_types(leaderboard_id integer, wanted text[], directive text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    offered text[];
    wishes text[] := coalesce(nullif(wanted, '{}'), directive);
    wish text;
    match text;
    chosen text[] := '{}';
BEGIN
    SELECT array_agg(g.gpu_type ORDER BY g.gpu_type) INTO offered
    FROM leaderboard.gpu_type g WHERE g.leaderboard_id = choose_gpu_types.leaderboard_id;
    IF offered IS NULL THEN
        PERFORM runner.refuse('KR003', 'the leaderboard offers no GPU type', 'Ask its owner to add one.');
    END IF;
    IF wishes IS NULL THEN
        IF cardinality(offered) > 1 THEN
            PERFORM runner.refuse('KR004', format('the leaderboard offers %s GPU types, choose', cardinality(offered)),
                format('Choose from: %s.', array_to_string(offered, ', ')));
        END IF;
        RETURN offered;
    END IF;
    FOREACH wish IN ARRAY wishes LOOP
        SELECT o.name INTO match
        FROM unnest(offered) AS o (name)
        WHERE lower(o.name) = lower(wish)
           OR EXISTS (SELECT FROM runner.gpu_type r
                      WHERE o.name = ANY (r.name || r.aliases) AND wish = ANY (r.name || r.aliases))
        ORDER BY o.name = wish DESC, lower(o.name) = lower(wish) DESC, o.name
        LIMIT 1;
        IF match IS NULL THEN
            PERFORM runner.refuse('KR003', format('GPU type %L is not offered by this leaderboard', wish),
                format('Choose from: %s.', array_to_string(offered, ', ')));
        ELSIF match = ANY (chosen) THEN
            PERFORM runner.refuse('KR011', format('GPU type %L is asked for twice', match), 'Name each GPU type once.');
        END IF;
        chosen := chosen || match;
    END LOOP;
    RETURN chosen;
END
$$;

CREATE FUNCTION runner.check_mode(mode text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF mode IS NULL OR mode NOT IN ('test', 'benchmark', 'profile', 'leaderboard', 'private') THEN
        PERFORM runner.refuse('KR005', format('unknown mode %L', mode),
            'Choose from: test, benchmark, profile, leaderboard, private.');
    END IF;
END
$$;

-- Adds the jobs, marks the submission as waiting and wakes the daemons. The caller holds the submission's row.
CREATE FUNCTION runner.add_jobs(submission_id integer, mode text, gpu_types text[], priority integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    added integer;
    payload text := array_to_string(gpu_types, ',');
BEGIN
    INSERT INTO runner.job (submission_id, gpu_type, mode, secret, priority)
    SELECT add_jobs.submission_id, g.name, add_jobs.mode, s.secret, coalesce(add_jobs.priority, 0)
    FROM unnest(add_jobs.gpu_types) WITH ORDINALITY AS g (name, number)
    CROSS JOIN unnest(CASE add_jobs.mode
        WHEN 'leaderboard' THEN ARRAY[false, true]
        WHEN 'private' THEN ARRAY[true]
        ELSE ARRAY[false]
    END) AS s (secret)
    ORDER BY g.number, s.secret;
    GET DIAGNOSTICS added = ROW_COUNT;

    INSERT INTO leaderboard.submission_job_status AS j (submission_id, status)
    VALUES (add_jobs.submission_id, 'pending')
    ON CONFLICT (submission_id) DO UPDATE SET status = 'pending' WHERE j.status IS DISTINCT FROM 'running';

    -- A payload has at most 8000 bytes; an empty one wakes everybody.
    PERFORM pg_notify('runner_queue', CASE WHEN octet_length(payload) < 7900 THEN payload ELSE '' END);
    RETURN added;
END
$$;

-- The one way in: validates, stores user, code, submission and jobs, wakes the daemons; returns the submission's id.
-- SECURITY DEFINER: a frontend's role needs no right on any table.
CREATE FUNCTION runner.submit(
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
    IF coalesce(btrim(submit.user_id), '') = '' OR length(submit.user_id) > 255 THEN
        PERFORM runner.refuse('KR010', 'a user id has 1 to 255 characters', 'Log in again.');
    END IF;
    IF length(submit.user_name) > 255 THEN
        PERFORM runner.refuse('KR010', 'a user name has at most 255 characters', 'Choose a shorter one.');
    END IF;
    -- An index entry, so never longer than a third of a page.
    IF length(submit.idempotency_key) NOT BETWEEN 1 AND 255 THEN
        PERFORM runner.refuse('KR014', 'an idempotency key has 1 to 255 characters',
            'Use a random identifier, or none.');
    END IF;

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
    IF submit.file_name IS NULL OR length(submit.file_name) > 255
       OR submit.file_name !~ '^[^/\\\x01-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+\.(py|cuh?|cpp)$' THEN
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
CREATE FUNCTION runner.enqueue(submission_id bigint, mode text, gpu_types text[], priority integer DEFAULT 0)
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
    IF v_submission.done THEN
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

-- Writes the final words of a submission whose jobs are all over: job status, then done. True: it is finished.
-- The caller holds the submission's row: of two jobs that end together, the second one sees the first.
CREATE FUNCTION runner.settle(submission_id integer) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_status text;
    v_error text;
BEGIN
    IF EXISTS (SELECT FROM runner.job j
               WHERE j.submission_id = settle.submission_id AND j.state IN ('queued', 'running')) THEN
        RETURN false;
    END IF;

    -- The gravest word of all jobs. A non-ranked job that has rows succeeded, whatever they say: clients read them.
    SELECT w.status, w.error INTO v_status, v_error
    FROM (
        SELECT j.id, j.secret,
               CASE
                   WHEN j.verdict = 'rejected' THEN 'hacked'
                   WHEN j.state = 'cancelled' THEN 'failed'
                   WHEN j.verdict IN ('internal_error', 'invalid') THEN 'failed'
                   WHEN j.mode = 'leaderboard' AND j.verdict <> 'accepted' THEN 'failed'
                   WHEN j.mode = 'leaderboard' AND EXISTS (
                       SELECT FROM runner.job_run x JOIN leaderboard.runs r ON r.id = x.run_id
                       WHERE x.job_id = j.id AND NOT r.passed) THEN 'failed'
                   WHEN EXISTS (SELECT FROM runner.job_run x WHERE x.job_id = j.id) THEN 'succeeded'
                   WHEN j.verdict = 'time_limit' THEN 'timed_out'
                   WHEN j.verdict = 'accepted' THEN 'succeeded'
                   ELSE 'failed'
               END AS status,
               CASE
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
        FROM runner.job j WHERE j.submission_id = settle.submission_id
    ) AS w
    ORDER BY array_position(ARRAY['hacked', 'failed', 'timed_out', 'succeeded'], w.status), w.secret, w.id
    LIMIT 1;

    INSERT INTO leaderboard.submission_job_status AS t (submission_id, status, error, last_heartbeat)
    VALUES (settle.submission_id, v_status, CASE WHEN v_status <> 'succeeded' THEN v_error END, now())
    ON CONFLICT (submission_id) DO UPDATE
    SET status = EXCLUDED.status, error = EXCLUDED.error, last_heartbeat = EXCLUDED.last_heartbeat;

    UPDATE leaderboard.submission s
    SET done = true, status = CASE v_status WHEN 'hacked' THEN 'hacked' ELSE s.status END
    WHERE s.id = settle.submission_id;
    RETURN true;
END
$$;

-- Cancels what waits, asks what runs to stop; returns how many jobs that were.
CREATE FUNCTION runner.cancel(submission_id bigint, user_id text DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id integer;
    v_queued integer;
    v_running text[];
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
        RETURNING j.state, j.gpu_type
    )
    SELECT count(*) FILTER (WHERE c.state = 'cancelled'), array_agg(c.gpu_type) FILTER (WHERE c.state = 'running')
    INTO v_queued, v_running FROM changed c;

    IF v_queued > 0 THEN
        v_done := runner.settle(v_id);
    END IF;
    IF v_queued > 0 OR v_running IS NOT NULL THEN
        PERFORM pg_notify('runner_events', json_build_object(
            'event', 'cancel', 'submission_id', v_id, 'cancelled', v_queued,
            'stopping', coalesce(cardinality(v_running), 0), 'submission_done', v_done)::text);
    END IF;
    RETURN v_queued + coalesce(cardinality(v_running), 0);
END
$$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA runner FROM PUBLIC;
