-- Returns the evaluations with a finished job that matches every filter given. Reruns and invalidations are made from
-- them. `cause` is a part of the job's error, or of the reason for which one of its attempts gave no result; case does
-- not matter.
--   twins     the latest finished jobs of the evaluation, public first.
--   counting  those of its jobs whose result counts.
--   obstacle  NULL, or why it is not evaluated again: open, cancelled (unless asked for by its number), hacked, not
--             offered.
-- SECURITY DEFINER, as are the functions that act on the evaluations.
CREATE OR REPLACE FUNCTION runner.matching(
    submission_id bigint DEFAULT NULL, leaderboard text DEFAULT NULL, host text DEFAULT NULL,
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, gpu_types text[] DEFAULT NULL,
    verdicts text[] DEFAULT NULL, cause text DEFAULT NULL
) RETURNS SETOF runner.evaluation
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_verdicts text[] := ARRAY['accepted', 'wrong_answer', 'compile_error', 'runtime_error', 'time_limit',
        'memory_limit', 'output_limit', 'rejected', 'invalid', 'internal_error'];
    v_board_id integer;
    v_gpu_types text[];
    v_unknown text;
BEGIN
    IF num_nonnulls(matching.submission_id, matching.leaderboard, matching.host, matching.since, matching.until,
                    nullif(matching.gpu_types, '{}'), nullif(matching.verdicts, '{}'),
                    nullif(matching.cause, '')) = 0 THEN
        PERFORM runner.refuse('KR019', 'no filter given, and everything is never meant',
            'Name a submission, a leaderboard, a host, a time span, a GPU type, a verdict or a cause.');
    END IF;
    IF matching.since >= matching.until THEN
        PERFORM runner.refuse('KR019',
            format('the time span from %s until %s is empty', matching.since, matching.until),
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
        PERFORM runner.refuse('KR018', format('host %L is not known here', matching.host),
            'Look at the list of hosts.');
    END IF;
    -- Every name of the types asked for, in lower case. Aliases that a daemon published widen nothing.
    SELECT array_agg(DISTINCT lower(n.name)) INTO v_gpu_types
    FROM unnest(matching.gpu_types) AS w (wish)
    CROSS JOIN LATERAL (
        SELECT w.wish
        UNION SELECT unnest(r.name || r.aliases) FROM runner.gpu_type r
        WHERE r.login IS NULL
          AND EXISTS (SELECT FROM unnest(r.name || r.aliases) AS a (name) WHERE lower(a.name) = lower(w.wish))
    ) AS n (name);
    SELECT w.wish INTO v_unknown
    FROM unnest(matching.gpu_types) AS w (wish)
    WHERE NOT EXISTS (SELECT FROM runner.gpu_type r, unnest(r.name || r.aliases) AS a (name)
                      WHERE lower(a.name) = lower(w.wish))
      AND NOT EXISTS (SELECT FROM leaderboard.gpu_type g WHERE lower(g.gpu_type) = lower(w.wish))
      AND NOT EXISTS (SELECT FROM runner.job j WHERE lower(j.gpu_type) = lower(w.wish));
    IF v_unknown IS NOT NULL THEN
        PERFORM runner.refuse('KR003', format('GPU type %L is not known here', v_unknown),
            'Look at the list of GPU types.');
    END IF;

    SELECT w.word INTO v_unknown FROM unnest(matching.verdicts) AS w (word)
    WHERE w.word IS NULL OR w.word <> ALL (v_verdicts);
    IF FOUND THEN
        PERFORM runner.refuse('KR019', format('%L is no verdict', v_unknown),
            format('Choose from: %s.', array_to_string(v_verdicts, ', ')));
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
          AND (nullif(matching.verdicts, '{}') IS NULL OR j.verdict = ANY (matching.verdicts))
          AND (nullif(matching.cause, '') IS NULL
               OR position(lower(matching.cause) IN lower(concat_ws(E'\n', j.error, j.causes::text))) > 0)
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
               -- Marked by another program: no result of ours could take the mark back.
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
