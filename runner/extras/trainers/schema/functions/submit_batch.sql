-- Stores items of a batch, at most 1,000, and returns one row per item in the order given. The name `batch` makes a
-- batch or adds to the one of that name. A key that is known returns its item, whatever batch has it, and never runs
-- again; with other content it is refused, and nothing is stored. An item that cannot be evaluated gets a result at
-- once: `invalid`. With `reuse`, an item whose work has a result gets a copy of it.
--
-- Items of one reference and equal settings become groups of `group_size`; a group is one job and takes one turn. The
-- daemons are notified once.
--
-- The lock on the owner makes its calls pass one by one, so keys and numbers need no other. The lock on the batch is
-- taken only where results are written.
CREATE OR REPLACE FUNCTION runner.submit_batch(
    items jsonb,
    gpu_type text,
    batch text DEFAULT NULL,
    user_id text DEFAULT NULL,
    settings jsonb DEFAULT '{}',
    priority integer DEFAULT 0,
    group_size integer DEFAULT 8,
    reuse boolean DEFAULT false,
    start_at timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    keep interval DEFAULT NULL
) RETURNS TABLE (key text, item_id bigint, batch_id bigint, state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_user_id text := coalesce(submit_batch.user_id, session_user);
    v_priority integer := coalesce(submit_batch.priority, 0);
    v_count integer;
    v_owner record;
    v_batch record;
    v_gpu_type text;
    v_stopped text;
    v_keys text[];
    v_references bytea[];
    v_candidates bytea[];
    v_entry_points text[];
    v_candidate_entry_points text[];
    v_settings jsonb[];
    v_payloads bytea[];
    v_faults text[];
    v_known bigint[];
    v_reused bigint[];
    v_groups integer[];
    v_group_count integer;
    v_job_ids bigint[] := '{}';
    v_turn bigint;
    v_number bigint;
    v_seq bigint;
    v_open bigint;
    v_new integer;
    v_bad text;
BEGIN
    PERFORM runner.check_isolation();
    IF jsonb_typeof(submit_batch.items) IS DISTINCT FROM 'array'
       OR jsonb_array_length(submit_batch.items) NOT BETWEEN 1 AND 1000 THEN
        PERFORM runner.refuse('KR050', 'items are a JSON array of 1 to 1000 objects',
            'Send more items with another call.');
    END IF;
    v_count := jsonb_array_length(submit_batch.items);
    IF btrim(v_user_id) = '' OR length(v_user_id) > 255 OR runner.is_odd(v_user_id) THEN
        PERFORM runner.refuse('KR010', 'a user id has 1 to 255 characters, none of them a control character',
            'Give such an id.');
    END IF;
    IF length(submit_batch.batch) NOT BETWEEN 1 AND 255 OR runner.is_odd(submit_batch.batch) THEN
        PERFORM runner.refuse('KR050', 'the name of a batch has 1 to 255 characters, none of them a control character',
            'Choose another name, or none.');
    END IF;
    submit_batch.group_size := coalesce(submit_batch.group_size, 8);
    IF submit_batch.group_size NOT BETWEEN 1 AND 16 THEN
        PERFORM runner.refuse('KR050', format('group_size is %s, expected 1 to 16', submit_batch.group_size),
            'Choose 8.');
    END IF;
    IF submit_batch.keep < interval '1 hour' OR submit_batch.keep > interval '10 years' THEN
        PERFORM runner.refuse('KR050',
            format('results are kept for %s, expected an hour to ten years', submit_batch.keep),
            'Give another time, or none.');
    END IF;
    PERFORM runner.check_times(submit_batch.start_at, submit_batch.expires_at);
    PERFORM runner.check_priority(v_priority);
    SELECT o.reason INTO v_stopped FROM runner.intake_stop o;
    IF FOUND THEN
        PERFORM runner.refuse('KR040', format('no submissions are accepted now: %s', v_stopped), 'Try again later.');
    END IF;
    IF EXISTS (SELECT FROM leaderboard.user_info u WHERE u.id = v_user_id AND u.is_banned) THEN
        PERFORM runner.refuse('KR010', format('user %L is banned', v_user_id), 'Ask an administrator.');
    END IF;
    SELECT r.name INTO v_gpu_type FROM runner.gpu_type r
    WHERE EXISTS (SELECT FROM unnest(r.name || r.aliases) AS n (name)
        WHERE lower(n.name) = lower(submit_batch.gpu_type))
    ORDER BY r.name = submit_batch.gpu_type DESC, r.name LIMIT 1;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR003', format('GPU type %L is not known here', submit_batch.gpu_type),
            'Look at runner.gpu_type.');
    END IF;
    v_bad := runner.settings_fault(coalesce(submit_batch.settings, '{}'));
    IF v_bad IS NOT NULL THEN
        PERFORM runner.refuse('KR050', v_bad, 'Correct the settings of the call.');
    END IF;

    SELECT o.id, o.max_open_items INTO v_owner FROM runner.batch_owner o
    WHERE o.login = session_user AND o.user_id = v_user_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        INSERT INTO runner.batch_owner (login, user_id) VALUES (session_user, v_user_id) ON CONFLICT DO NOTHING;
        SELECT o.id, o.max_open_items INTO v_owner FROM runner.batch_owner o
        WHERE o.login = session_user AND o.user_id = v_user_id FOR NO KEY UPDATE;
    END IF;

    -- Every item, read once. A reference may be named by the hash of one that is stored, which runner.reap leaves alone
    -- when it was used of late.
    UPDATE runner.source s SET used_at = now()
    WHERE s.hash = ANY (ARRAY(
            SELECT DISTINCT decode(e.item ->> 'reference_hash', 'hex')
            FROM jsonb_array_elements(submit_batch.items) AS e (item)
            WHERE e.item ->> 'reference_hash' ~ '^[0-9a-f]{64}$'))
      AND s.used_at < now() - interval '1 hour';
    SELECT array_agg(r.key ORDER BY r.number), array_agg(r.reference_hash ORDER BY r.number),
           array_agg(r.candidate_hash ORDER BY r.number), array_agg(r.entry_point ORDER BY r.number),
           array_agg(r.candidate_entry_point ORDER BY r.number), array_agg(r.settings ORDER BY r.number),
           array_agg(runner.item_fault(r.item, r.reference, r.known, r.candidate, r.settings, r.entry_point,
                                       r.candidate_entry_point) ORDER BY r.number)
    INTO v_keys, v_references, v_candidates, v_entry_points, v_candidate_entry_points, v_settings, v_faults
    FROM (
        SELECT p.*, EXISTS (SELECT FROM runner.source s WHERE s.hash = p.reference_hash) AS known,
               coalesce(p.given_entry_point,
                        CASE WHEN p.entry_point = 'Model' THEN 'ModelNew' ELSE p.entry_point || 'New' END)
                   AS candidate_entry_point
        FROM (
            SELECT e.number, e.item, e.item ->> 'key' AS key, t.reference, t.candidate,
                   CASE WHEN t.reference IS NOT NULL THEN sha256(convert_to(t.reference, 'UTF8'))
                        WHEN e.item ->> 'reference_hash' ~ '^[0-9a-f]{64}$'
                            THEN decode(e.item ->> 'reference_hash', 'hex')
                   END AS reference_hash,
                   sha256(convert_to(t.candidate, 'UTF8')) AS candidate_hash,
                   coalesce(e.item ->> 'entry_point', 'Model') AS entry_point,
                   e.item ->> 'candidate_entry_point' AS given_entry_point,
                   CASE WHEN jsonb_typeof(coalesce(e.item -> 'settings', '{}')) = 'object'
                        THEN coalesce(submit_batch.settings, '{}') || coalesce(e.item -> 'settings', '{}')
                        ELSE e.item -> 'settings' END AS settings
            FROM jsonb_array_elements(submit_batch.items) WITH ORDINALITY AS e (item, number)
            CROSS JOIN LATERAL (
                SELECT CASE WHEN jsonb_typeof(e.item -> 'reference') = 'string'
                    THEN e.item ->> 'reference' END AS reference,
                       CASE WHEN jsonb_typeof(e.item -> 'candidate') = 'string'
                           THEN e.item ->> 'candidate' END AS candidate
                OFFSET 0
            ) AS t
        ) AS p
    ) AS r;
    SELECT format('key %s', coalesce(quote_literal(k.key), 'NULL')) INTO v_bad
    FROM unnest(v_keys) AS k (key)
    WHERE k.key IS NULL OR length(k.key) NOT BETWEEN 1 AND 255 OR runner.is_odd(k.key) LIMIT 1;
    IF FOUND THEN
        PERFORM runner.refuse('KR014', v_bad || ' has not 1 to 255 characters, or has a control character',
            'Give each item a key of its own.');
    END IF;
    SELECT array_agg(sha256(convert_to(CASE
               WHEN i.fault IS NULL THEN jsonb_build_array(
                   encode(i.reference, 'hex'), i.entry_point, encode(i.candidate, 'hex'), i.candidate_entry_point,
                   i.settings, v_gpu_type)::text
               ELSE (submit_batch.items -> (i.number - 1)::integer)::text
           END, 'UTF8')) ORDER BY i.number)
    INTO v_payloads
    FROM unnest(v_references, v_candidates, v_entry_points, v_candidate_entry_points, v_settings, v_faults)
        WITH ORDINALITY AS i (reference, candidate, entry_point, candidate_entry_point, settings, fault, number);

    -- Known work: the items of these keys, then, among the rest, equal items.
    SELECT array_agg(f.id ORDER BY i.number), min(i.key) FILTER (WHERE f.payload <> i.payload),
           count(*) FILTER (WHERE f.id IS NULL)
    INTO v_known, v_bad, v_new
    FROM unnest(v_keys, v_payloads) WITH ORDINALITY AS i (key, payload, number)
    LEFT JOIN LATERAL (
        SELECT o.id, o.payload FROM runner.item o WHERE o.owner_id = v_owner.id AND o.key = i.key OFFSET 0
    ) AS f ON true;
    IF v_bad IS NULL THEN
        SELECT min(d.key) INTO v_bad FROM (
            SELECT i.key FROM unnest(v_keys, v_payloads) AS i (key, payload)
            GROUP BY i.key HAVING count(DISTINCT i.payload) > 1) AS d;
    END IF;
    IF v_bad IS NOT NULL THEN
        PERFORM runner.refuse('KR014', format('key %L was used for an item with other content', v_bad),
            'Use a new key for a new item.');
    END IF;

    IF v_new > 0 THEN
        -- Without a name nothing is found.
        SELECT b.id, b.removing, b.cancelled_at, b.idle INTO v_batch FROM runner.batch b
        WHERE b.owner_id = v_owner.id AND b.name = submit_batch.batch;
        IF v_batch.id IS NULL THEN
            INSERT INTO runner.batch AS b (owner_id, name, keep)
            VALUES (v_owner.id, submit_batch.batch, coalesce(submit_batch.keep, '30 days'))
            RETURNING b.id, b.removing, b.cancelled_at, b.idle INTO v_batch;
        ELSIF v_batch.removing OR v_batch.cancelled_at IS NOT NULL THEN
            PERFORM runner.refuse('KR051', format('batch %L is %s', submit_batch.batch,
                CASE WHEN v_batch.removing THEN 'being removed' ELSE 'cancelled' END), 'Choose another name.');
        END IF;

        -- Items that wait or run are counted per batch: the last number less the last result.
        IF v_owner.max_open_items IS NOT NULL THEN
            SELECT sum(c.open) INTO v_open
            FROM (SELECT b.id FROM runner.batch b WHERE b.owner_id = v_owner.id AND NOT b.idle OFFSET 0) AS b
            CROSS JOIN LATERAL (
                SELECT coalesce((SELECT i.number FROM runner.item i WHERE i.batch_id = b.id
                                 ORDER BY i.number DESC LIMIT 1), 0)
                     - coalesce((SELECT r.seq FROM runner.item_result r WHERE r.batch_id = b.id
                                 ORDER BY r.seq DESC LIMIT 1), 0) AS open
            ) AS c;
            IF coalesce(v_open, 0) + v_new > v_owner.max_open_items THEN
                PERFORM runner.refuse('KR052', format('%s of %s items that may be open are', coalesce(v_open, 0),
                    v_owner.max_open_items), 'Wait for results, or cancel a batch.');
            END IF;
            UPDATE runner.batch b SET idle = true
            FROM (
                SELECT o.id FROM runner.batch o
                WHERE o.owner_id = v_owner.id AND NOT o.idle AND o.id <> v_batch.id
                  AND coalesce((SELECT i.number FROM runner.item i WHERE i.batch_id = o.id
                                ORDER BY i.number DESC LIMIT 1), 0)
                    = coalesce((SELECT r.seq FROM runner.item_result r WHERE r.batch_id = o.id
                                ORDER BY r.seq DESC LIMIT 1), 0)
                LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED
            ) AS over
            WHERE b.id = over.id;
        END IF;
        IF v_batch.idle THEN
            UPDATE runner.batch b SET idle = false WHERE b.id = v_batch.id;
        END IF;

        -- A key that is given twice is one item: its first place counts.
        SELECT array_agg(CASE WHEN f.item_id IS NULL AND i.first AND i.fault IS NULL AND submit_batch.reuse
                              THEN e.item_id END ORDER BY i.number)
        INTO v_reused
        FROM (
            SELECT u.*, row_number() OVER (PARTITION BY u.key ORDER BY u.number) = 1 AS first
            FROM unnest(v_keys, v_payloads, v_faults) WITH ORDINALITY AS u (key, payload, fault, number)
        ) AS i
        JOIN unnest(v_known) WITH ORDINALITY AS f (item_id, number) ON f.number = i.number
        LEFT JOIN LATERAL (
            SELECT r.item_id FROM runner.item_result r
            WHERE submit_batch.reuse AND r.owner_id = v_owner.id AND r.payload = i.payload
              AND r.verdict IS NOT NULL AND r.verdict <> 'internal_error'
            ORDER BY r.item_id DESC LIMIT 1
        ) AS e ON true;

        -- Groups: of one reference, entry point and settings, as many as group_size in the order given.
        SELECT array_agg(g.group_number ORDER BY g.number), coalesce(max(g.group_number), 0)
        INTO v_groups, v_group_count
        FROM (
            SELECT p.number, CASE WHEN p.fresh THEN dense_rank() OVER (
                       ORDER BY p.fresh DESC, p.leader, p.place / submit_batch.group_size)::integer END AS group_number
            FROM (
                SELECT q.number, q.fresh, min(q.number) OVER w AS leader,
                       row_number() OVER (w ORDER BY q.number) - 1 AS place
                FROM (
                    SELECT i.number, i.reference, i.entry_point, i.settings,
                           k.item_id IS NULL AND i.fault IS NULL AND v_reused[i.number] IS NULL
                           AND row_number() OVER (PARTITION BY i.key ORDER BY i.number) = 1 AS fresh
                    FROM unnest(v_keys, v_references, v_entry_points, v_settings, v_faults)
                        WITH ORDINALITY AS i (key, reference, entry_point, settings, fault, number)
                    JOIN unnest(v_known) WITH ORDINALITY AS k (item_id, number) ON k.number = i.number
                ) AS q
                WINDOW w AS (PARTITION BY q.fresh, q.reference, q.entry_point, q.settings)
            ) AS p
        ) AS g;

        IF v_group_count > 0 THEN
            -- Each text once. One that is there already is marked as used, once an hour.
            INSERT INTO runner.source AS s (hash, text)
            SELECT DISTINCT ON (t.hash) t.hash, t.text
            FROM (
                SELECT x.hash, CASE x.part WHEN 1 THEN submit_batch.items -> (i.number - 1)::integer ->> 'reference'
                                    ELSE submit_batch.items -> (i.number - 1)::integer ->> 'candidate' END AS text
                FROM (
                    SELECT min(u.number) AS number, u.hash, u.part
                    FROM (
                        SELECT g.number, p.part, CASE p.part WHEN 1 THEN v_references[g.number]
                                                 ELSE v_candidates[g.number] END AS hash
                        FROM unnest(v_groups) WITH ORDINALITY AS g (group_number, number)
                        CROSS JOIN (VALUES (1), (2)) AS p (part)
                        WHERE g.group_number IS NOT NULL
                          AND (p.part = 2 OR submit_batch.items -> (g.number - 1)::integer ? 'reference')
                    ) AS u
                    GROUP BY u.hash, u.part
                ) AS x
                JOIN unnest(v_groups) WITH ORDINALITY AS i (group_number, number) ON i.number = x.number
            ) AS t
            ORDER BY t.hash
            ON CONFLICT (hash) DO UPDATE SET used_at = now() WHERE s.used_at < now() - interval '1 hour';

            v_turn := runner.take_turns(v_user_id, v_gpu_type, v_priority, v_group_count);
            WITH made AS (
                INSERT INTO runner.job (batch_id, user_id, gpu_type, mode, secret, priority, turn, ready, not_before,
                                        expires_at)
                SELECT v_batch.id, v_user_id, v_gpu_type, 'benchmark', false, v_priority, v_turn + 2 * (g.number - 1),
                       submit_batch.start_at > now() IS NOT TRUE,
                       CASE WHEN submit_batch.start_at > now() THEN submit_batch.start_at END, submit_batch.expires_at
                FROM generate_series(1, v_group_count) AS g (number) ORDER BY g.number
                RETURNING id
            )
            SELECT array_agg(m.id ORDER BY m.id) INTO v_job_ids FROM made m;
            INSERT INTO runner.job_group (job_id, reference, entry_point, settings)
            SELECT v_job_ids[g.group_number], v_references[g.number], v_entry_points[g.number], v_settings[g.number]
            FROM (SELECT u.group_number, min(u.number) AS number
                  FROM unnest(v_groups) WITH ORDINALITY AS u (group_number, number)
                  WHERE u.group_number IS NOT NULL GROUP BY u.group_number) AS g
            ORDER BY g.group_number;
        END IF;

        SELECT i.number INTO v_number FROM runner.item i WHERE i.batch_id = v_batch.id ORDER BY i.number DESC LIMIT 1;
        INSERT INTO runner.item (batch_id, number, owner_id, key, payload, job_id, reference, candidate, entry_point)
        SELECT v_batch.id, coalesce(v_number, 0) + row_number() OVER (ORDER BY n.number), v_owner.id, v_keys[n.number],
               v_payloads[n.number], v_job_ids[v_groups[n.number]],
               CASE WHEN v_groups[n.number] IS NOT NULL THEN v_references[n.number] END,
               CASE WHEN v_groups[n.number] IS NOT NULL THEN v_candidates[n.number] END,
               CASE WHEN v_groups[n.number] IS NOT NULL THEN v_candidate_entry_points[n.number] END
        FROM (
            SELECT min(u.number) AS number FROM unnest(v_keys, v_known) WITH ORDINALITY AS u (key, item_id, number)
            WHERE u.item_id IS NULL GROUP BY u.key
        ) AS n
        ORDER BY n.number;

        IF EXISTS (SELECT FROM unnest(v_known, v_faults, v_reused) AS u (item_id, fault, reused)
                   WHERE u.item_id IS NULL AND (u.fault IS NOT NULL OR u.reused IS NOT NULL)) THEN
            PERFORM FROM runner.batch b WHERE b.id = v_batch.id FOR NO KEY UPDATE;
            SELECT r.seq INTO v_seq FROM runner.item_result r WHERE r.batch_id = v_batch.id ORDER BY r.seq DESC LIMIT 1;
            INSERT INTO runner.item_result (item_id, batch_id, seq, owner_id, payload, verdict, reused_from, result)
            SELECT i.id, v_batch.id, coalesce(v_seq, 0) + row_number() OVER (ORDER BY n.number), v_owner.id, i.payload,
                   CASE WHEN n.fault IS NOT NULL THEN 'invalid' ELSE e.verdict END,
                   CASE WHEN n.fault IS NULL THEN e.item_id END,
                   CASE WHEN n.fault IS NOT NULL
                        THEN runner.empty_result(
                            'invalid', CASE WHEN n.fault LIKE 'the candidate %' THEN 'compile' ELSE 'reference' END,
                            n.fault) ELSE e.result END
            FROM (
                SELECT min(u.number) AS number, u.key, min(u.fault) AS fault, min(u.reused) AS reused
                FROM unnest(v_keys, v_known, v_faults, v_reused)
                    WITH ORDINALITY AS u (key, item_id, fault, reused, number)
                WHERE u.item_id IS NULL GROUP BY u.key
            ) AS n
            CROSS JOIN LATERAL (
                SELECT o.id, o.payload FROM runner.item o WHERE o.owner_id = v_owner.id AND o.key = n.key OFFSET 0
            ) AS i
            LEFT JOIN LATERAL (
                SELECT r.item_id, r.verdict, r.result FROM runner.item_result r WHERE r.item_id = n.reused OFFSET 0
            ) AS e ON true
            WHERE n.fault IS NOT NULL OR n.reused IS NOT NULL;
        END IF;
        IF v_group_count > 0 THEN
            PERFORM runner.call('runner_queue', v_gpu_type);
        END IF;
    END IF;

    RETURN QUERY
    SELECT k.key, i.id, i.batch_id,
           CASE WHEN r.item_id IS NOT NULL THEN CASE WHEN r.verdict IS NULL THEN 'cancelled' ELSE 'done' END
                ELSE coalesce(j.state, 'queued') END
    FROM unnest(v_keys) WITH ORDINALITY AS k (key, number)
    CROSS JOIN LATERAL (
        SELECT o.id, o.batch_id, o.job_id FROM runner.item o WHERE o.owner_id = v_owner.id AND o.key = k.key OFFSET 0
    ) AS i
    LEFT JOIN LATERAL (SELECT o.item_id, o.verdict FROM runner.item_result o
        WHERE o.item_id = i.id OFFSET 0) AS r ON true
    LEFT JOIN LATERAL (SELECT o.state FROM runner.job o WHERE o.id = i.job_id OFFSET 0) AS j ON true
    ORDER BY k.number;
END
$$;
