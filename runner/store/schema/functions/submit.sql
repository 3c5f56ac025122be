-- The entry for submissions. Validates, stores user, code, submission and jobs, wakes the daemons, and returns the
-- submission's id. No host begins the jobs before `start_at`; those that no host has begun by `expires_at` are
-- cancelled. SECURITY DEFINER: a frontend's role needs no right on any table.
CREATE OR REPLACE FUNCTION runner.submit(
    leaderboard text,
    user_id text,
    file_name text,
    code bytea,
    mode text,
    gpu_types text[] DEFAULT NULL,
    user_name text DEFAULT NULL,
    priority integer DEFAULT 0,
    idempotency_key text DEFAULT NULL,
    start_at timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_category text := CASE submit.mode WHEN 'leaderboard' THEN 'leaderboard' ELSE 'test' END;
    v_hash text;
    v_known record;
    v_differs text;
    v_source text;
    v_directives record;
    v_board_name text;
    v_board record;
    v_gpu_types text[];
    v_banned boolean;
    v_lock_timeout text;
    v_code_id integer;
    v_submission_id integer;
BEGIN
    PERFORM runner.check_isolation();
    -- Forms send an empty text for none.
    submit.leaderboard := nullif(btrim(submit.leaderboard), '');
    submit.user_name := substring(submit.user_name FROM E'.*\\S.*');
    -- Editors put a byte order mark there.
    IF substring(submit.code FROM 1 FOR 3) = E'\\xEFBBBF' THEN
        submit.code := substring(submit.code FROM 4);
    END IF;
    IF coalesce(btrim(submit.user_id), '') = '' OR length(submit.user_id) > 255 OR runner.is_odd(submit.user_id) THEN
        PERFORM runner.refuse('KR010', 'a user id has 1 to 255 characters, none of them a control character',
            'Give such an id.');
    END IF;
    PERFORM runner.check_shared_id(submit.user_id);
    IF length(submit.user_name) > 255 OR runner.is_odd(submit.user_name) THEN
        PERFORM runner.refuse('KR010', 'a user name has at most 255 characters, none of them a control character',
            'Choose another one.');
    END IF;
    -- The key is an index entry, which must fit into a third of a page.
    IF length(submit.idempotency_key) NOT BETWEEN 1 AND 255 OR runner.is_odd(submit.idempotency_key) THEN
        PERFORM runner.refuse('KR014', 'an idempotency key has 1 to 255 characters, none of them a control character',
            'Use a random identifier, or none.');
    END IF;
    PERFORM runner.check_priority(submit.priority);

    -- This also locks the user's row, so that a user's submissions pass one by one. Keys and rate limits need that.
    INSERT INTO leaderboard.user_info AS u (id, user_name) VALUES (submit.user_id, submit.user_name)
    ON CONFLICT (id) DO UPDATE SET user_name = EXCLUDED.user_name
        WHERE EXCLUDED.user_name IS NOT NULL AND u.user_name IS DISTINCT FROM EXCLUDED.user_name;

    IF submit.idempotency_key IS NOT NULL THEN
        v_hash := encode(sha256(convert_to((jsonb_build_array(
            submit.leaderboard, submit.file_name, encode(sha256(submit.code), 'hex'), submit.mode,
            (SELECT jsonb_agg(lower(g.name) ORDER BY g.number)
             FROM unnest(submit.gpu_types) WITH ORDINALITY AS g (name, number)), coalesce(submit.priority, 0)
        ) || CASE WHEN submit.options IS NULL THEN '[]' ELSE jsonb_build_array(submit.options) END)::text,
            'UTF8')), 'hex');
        SELECT i.submission_id, i.payload_hash INTO v_known
        FROM runner.idempotency i WHERE i.user_id = submit.user_id AND i.key = submit.idempotency_key;
        IF FOUND THEN
            IF v_known.payload_hash <> v_hash THEN
                SELECT concat_ws(', ',
                    CASE WHEN c.hash <> encode(sha256(submit.code), 'hex') THEN 'code' END,
                    CASE WHEN s.file_name <> submit.file_name THEN format('file name (%s)', s.file_name) END,
                    CASE WHEN l.name <> submit.leaderboard THEN format('leaderboard (%s)', l.name) END,
                    CASE WHEN j.mode <> submit.mode THEN format('mode (%s)', j.mode) END,
                    CASE WHEN j.priority <> coalesce(submit.priority, 0) THEN format('priority (%s)', j.priority) END,
                    CASE WHEN j.options IS DISTINCT FROM submit.options THEN 'options' END)
                INTO v_differs
                FROM leaderboard.submission s
                JOIN leaderboard.code_files c ON c.id = s.code_id
                JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
                CROSS JOIN LATERAL (
                    SELECT o.mode, o.priority, o.options FROM runner.job o WHERE o.submission_id = s.id
                        ORDER BY o.id LIMIT 1
                ) AS j
                WHERE s.id = v_known.submission_id;
                PERFORM runner.refuse('KR014',
                    format('idempotency key %L was used for submission %s with another %s', submit.idempotency_key,
                           v_known.submission_id, coalesce(nullif(v_differs, ''),
                               'choice of leaderboard or GPU types')),
                    'Use a new key for a new submission.');
            END IF;
            RETURN v_known.submission_id;
        END IF;
    END IF;

    PERFORM runner.check_times(submit.start_at, submit.expires_at);
    SELECT u.is_banned INTO v_banned FROM leaderboard.user_info u WHERE u.id = submit.user_id;
    IF v_banned THEN
        PERFORM runner.refuse('KR010', format('user %L is banned', submit.user_id), 'Ask an administrator.');
    END IF;

    PERFORM runner.check_mode(submit.mode);
    -- 'x.py', not '.py'; no path, and no character that could disturb a terminal.
    IF submit.file_name IS NULL OR length(submit.file_name) > 255 OR runner.is_odd(submit.file_name)
       OR submit.file_name !~ E'^[^/\\\\]+\\.(py|cuh?|cpp)$' THEN
        PERFORM runner.refuse('KR008', format('bad file name %L', left(submit.file_name, 300)),
            'A file name ends in .py, .cu, .cuh or .cpp, has at most 255 characters and no path or control '
            'characters.');
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
        PERFORM runner.refuse('KR001', 'no leaderboard named',
            'Name one, or put "#!POPCORN leaderboard NAME" into the file.');
    END IF;
    -- Locked as the foreign key would lock it later: a leaderboard that is being deleted is then not found.
    SELECT l.id INTO v_board
    FROM leaderboard.leaderboard l WHERE l.name = v_board_name FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR001', format('leaderboard %L does not exist', v_board_name),
            'Look at the list of leaderboards.');
    END IF;
    PERFORM runner.check_entry(v_board.id, submit.user_id, now());
    v_gpu_types := runner.choose_gpu_types(v_board.id, submit.gpu_types, v_directives.gpu_types);
    PERFORM runner.check_options(v_board.id, submit.mode, v_gpu_types, submit.options);

    PERFORM runner.check_hourly_limit(v_board.id, submit.user_id, v_category);
    PERFORM runner.check_open_jobs(v_board.id, submit.user_id, submit.mode, cardinality(v_gpu_types));

    -- Another transaction may have stored the same bytes and not be over: that is waited for, but not for long.
    v_lock_timeout := current_setting('lock_timeout');
    BEGIN
        PERFORM set_config('lock_timeout', '5s', true);
        INSERT INTO leaderboard.code_files (code) VALUES (submit.code)
        ON CONFLICT (hash) DO NOTHING RETURNING id INTO v_code_id;
    EXCEPTION WHEN lock_not_available THEN
        PERFORM runner.refuse('KR031', 'the same file is being stored by a transaction that stays open',
            'Try again in a moment.');
    END;
    PERFORM set_config('lock_timeout', v_lock_timeout, true);
    -- Locked, so that runner.remove_code does not take it; one that it has just taken is stored again.
    WHILE v_code_id IS NULL LOOP
        SELECT c.id INTO v_code_id FROM leaderboard.code_files c WHERE c.hash = encode(sha256(submit.code), 'hex')
        FOR KEY SHARE;
        IF NOT FOUND THEN
            INSERT INTO leaderboard.code_files (code) VALUES (submit.code)
            ON CONFLICT (hash) DO NOTHING RETURNING id INTO v_code_id;
        END IF;
    END LOOP;

    INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time, done,
        mode_category)
    VALUES (v_board.id, submit.file_name, submit.user_id, v_code_id, now(), false, v_category)
    RETURNING id INTO v_submission_id;

    IF submit.idempotency_key IS NOT NULL THEN
        INSERT INTO runner.idempotency (user_id, key, payload_hash, submission_id)
        VALUES (submit.user_id, submit.idempotency_key, v_hash, v_submission_id);
    END IF;

    PERFORM runner.add_jobs(v_submission_id, submit.mode, v_gpu_types, submit.priority, submit.options);
    IF submit.start_at > now() OR submit.expires_at IS NOT NULL THEN
        -- A secret job begins, or ends, with what its public one does.
        UPDATE runner.job j
        SET not_before = CASE WHEN submit.start_at > now() THEN submit.start_at END, expires_at = submit.expires_at,
            ready = j.ready AND submit.start_at > now() IS NOT TRUE
        WHERE j.submission_id = v_submission_id AND NOT j.after_public;
    END IF;
    RETURN v_submission_id;
END
$$;
