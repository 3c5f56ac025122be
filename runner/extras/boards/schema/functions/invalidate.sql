-- Takes what matches out of the ranking, public and secret job together, and returns how many jobs that concerned. Jobs
-- that wait or run are not touched. A rerun brings a submission back.
CREATE OR REPLACE FUNCTION runner.invalidate(
    submission_id bigint DEFAULT NULL,
    leaderboard text DEFAULT NULL,
    host text DEFAULT NULL,
    since timestamptz DEFAULT NULL,
    until timestamptz DEFAULT NULL,
    gpu_types text[] DEFAULT NULL,
    reason text DEFAULT NULL,
    verdicts text[] DEFAULT NULL,
    cause text DEFAULT NULL
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_reason text := 'taken out of the ranking: ' || nullif(btrim(invalidate.reason), '');
    v_ids integer[];
    v_jobs bigint[];
    v_payload text;
BEGIN
    PERFORM runner.check_isolation();
    IF v_reason IS NULL THEN
        PERFORM runner.refuse('KR021', 'no reason given', 'Say why; the submission''s author reads it.');
    END IF;
    SELECT array_agg(DISTINCT m.submission_id) INTO v_ids
    FROM runner.matching(invalidate.submission_id, invalidate.leaderboard, invalidate.host, invalidate.since,
                         invalidate.until, invalidate.gpu_types, invalidate.verdicts, invalidate.cause) m
    WHERE m.counting <> '{}';
    PERFORM FROM leaderboard.submission s WHERE s.id = ANY (v_ids) ORDER BY s.id FOR NO KEY UPDATE;

    SELECT array_agg(c.id), array_agg(DISTINCT m.submission_id) INTO v_jobs, v_ids
    FROM runner.matching(invalidate.submission_id, invalidate.leaderboard, invalidate.host, invalidate.since,
                         invalidate.until, invalidate.gpu_types, invalidate.verdicts, invalidate.cause) m
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
    PERFORM runner.tell('runner_events', CASE
        WHEN octet_length(v_payload) < 7900 THEN v_payload
        ELSE json_build_object('event', 'invalidated', 'submissions', NULL)::text
    END);
    RETURN cardinality(v_jobs);
END
$$;
