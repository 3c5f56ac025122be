-- Lets secret jobs follow their public ones, then retires what finished reruns replace. Then finishes those of these
-- submissions that have no open job: writes the job status first, then `done`. Returns the finished ones. The caller
-- holds the locks on the submissions' rows: of two jobs that end together, the second one sees the first. One call
-- takes a whole batch, so that a batch costs a few statements, not a few for each submission.
CREATE OR REPLACE FUNCTION runner.settle_all(submission_ids integer[]) RETURNS integer[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_id integer;
    v_written integer;
    v_rerun integer[];
    v_over integer[];
    v_words text[];
    v_errors text[];
    v_before text[];
    v_hacked integer[];
    v_ours integer[] := '{}';
    v_follows boolean;
    v_followed boolean := false;
    v_replaced boolean := false;
BEGIN
    -- One statement reads all of it, because starting a statement costs more than what it does for a few submissions.
    -- Aggregates, because only the submission's index is a way to them. A plan that was made when nothing was queued or
    -- replaced would walk the indexes of queued or replaced jobs, and be kept when those hold thousands.
    LOOP
        SELECT array_agg(f.id ORDER BY f.id) FILTER (WHERE f.rerun), bool_or(f.follows),
               array_agg(f.id ORDER BY f.id) FILTER (WHERE f.over),
               array_agg(f.status ORDER BY f.id) FILTER (WHERE f.over),
               array_agg(f.error ORDER BY f.id) FILTER (WHERE f.over),
               array_agg(f.before ORDER BY f.id) FILTER (WHERE f.over)
        INTO v_rerun, v_follows, v_over, v_words, v_errors, v_before
        FROM (
            SELECT u.id, n.over, n.rerun, n.follows, g.status, g.error, s.status AS before
            FROM unnest(settle_all.submission_ids) AS u (id)
            CROSS JOIN LATERAL (SELECT o.status FROM leaderboard.submission o WHERE o.id = u.id OFFSET 0) AS s
            CROSS JOIN LATERAL (
                SELECT coalesce(bool_and(j.state IN ('done', 'cancelled')), true) AS over,
                       bool_or(j.state IN ('done', 'cancelled') AND j.replaces IS NOT NULL
                           AND j.retired_at IS NULL) AS rerun,
                       bool_or(j.state = 'queued' AND j.after_public) AS follows
                FROM runner.job j WHERE j.submission_id = u.id
            ) AS n
            -- The gravest status of all jobs. A non-ranked job that has rows succeeded, whatever they say: clients read
            -- them.
            LEFT JOIN LATERAL (
                SELECT w.status, w.error
                FROM (
                    SELECT j.id, j.secret, j.retired_at,
                           CASE
                               WHEN j.retired_at IS NOT NULL THEN 'failed'
                               WHEN j.verdict = 'rejected' THEN 'hacked'
                               WHEN j.state = 'cancelled' THEN 'failed'
                               WHEN j.verdict IN ('internal_error', 'invalid') THEN 'failed'
                               WHEN j.mode = 'leaderboard' AND j.verdict <> 'accepted' THEN 'failed'
                               WHEN j.mode = 'leaderboard' AND NOT r.passed THEN 'failed'
                               WHEN r.rows > 0 THEN 'succeeded'
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
                    -- Neither EXISTS nor a join: a plan that was made when there were few results would read all of
                    -- them, and be kept when there are many.
                    CROSS JOIN LATERAL (
                        SELECT count(*) AS rows,
                               bool_and((SELECT o.passed FROM leaderboard.runs o WHERE o.id = x.run_id)) AS passed
                        FROM runner.job_run x WHERE x.job_id = j.id
                    ) AS r
                    WHERE j.submission_id = u.id AND n.over AND (j.retired_at IS NULL OR j.retired_as = 'invalidated')
                ) AS w
                ORDER BY array_position(ARRAY['hacked', 'failed', 'timed_out', 'succeeded'], w.status),
                    w.retired_at IS NULL,
                         w.secret, w.id
                LIMIT 1
            ) AS g ON true
        ) AS f;
        IF v_follows AND NOT v_followed THEN
            v_followed := true;
            PERFORM runner.follow_public(settle_all.submission_ids);
        ELSIF v_rerun IS NOT NULL AND NOT v_replaced THEN
            v_replaced := true;
            FOREACH v_id IN ARRAY v_rerun LOOP
                PERFORM runner.replace_jobs(v_id);
            END LOOP;
        ELSE
            EXIT;
        END IF;
    END LOOP;
    IF v_over IS NULL THEN
        RETURN NULL;
    END IF;

    UPDATE leaderboard.submission_job_status t
    SET status = w.word, error = CASE WHEN w.word <> 'succeeded' THEN w.error END, last_heartbeat = now()
    FROM unnest(v_over, v_words, v_errors) AS w (id, word, error)
    WHERE t.submission_id = w.id AND t.submission_id = ANY (v_over);
    GET DIAGNOSTICS v_written = ROW_COUNT;
    IF v_written < cardinality(v_over) THEN
        -- Another program may have deleted a row, or makes it just now.
        INSERT INTO leaderboard.submission_job_status AS t (submission_id, status, error, last_heartbeat)
        SELECT w.id, w.word, CASE WHEN w.word <> 'succeeded' THEN w.error END, now()
        FROM unnest(v_over, v_words, v_errors) AS w (id, word, error) ORDER BY w.id
        ON CONFLICT (submission_id) DO UPDATE
        SET status = EXCLUDED.status, error = EXCLUDED.error, last_heartbeat = EXCLUDED.last_heartbeat;
    END IF;

    IF 'hacked' = ANY (v_words) OR 'hacked' = ANY (v_before) THEN
        -- marked_hacked remembers whose mark it is: a later verdict takes back ours, never that of another program.
        SELECT array_agg(w.id), array_agg(w.id) FILTER (WHERE w.before <> 'hacked' OR n.marked) INTO v_hacked, v_ours
        FROM unnest(v_over, v_words, v_before) AS w (id, word, before)
        CROSS JOIN LATERAL (SELECT bool_or(j.marked_hacked) AS marked FROM runner.job j
            WHERE j.submission_id = w.id) AS n
        WHERE w.word = 'hacked' OR w.before = 'hacked';
        v_ours := coalesce(v_ours, '{}');
        UPDATE runner.job j
        SET marked_hacked = j.submission_id = ANY (v_ours) AND j.verdict = 'rejected' AND j.retired_at IS NULL
        WHERE j.submission_id = ANY (v_hacked) AND (j.marked_hacked OR j.verdict = 'rejected');
    END IF;
    UPDATE leaderboard.submission s
    SET done = true,
        status = CASE WHEN w.word = 'hacked' THEN 'hacked' WHEN w.id = ANY (v_ours) THEN 'active' ELSE s.status END
    FROM unnest(v_over, v_words) AS w (id, word)
    WHERE s.id = w.id AND s.id = ANY (v_over);
    RETURN v_over;
END
$$;
