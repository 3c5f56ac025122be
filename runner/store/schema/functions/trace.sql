-- Notes the W3C trace context of a submission and returns the submission's id, so that it can stand around runner.submit.
-- The first one counts: a submission that was sent again keeps its trace.
CREATE OR REPLACE FUNCTION runner.trace(submission_id bigint, traceparent text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF trace.traceparent IS NULL OR trace.traceparent !~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
       OR trace.traceparent ~ '^00-0{32}-|^00-[0-9a-f]{32}-0{16}-' THEN
        PERFORM runner.refuse('KR032', format('%L is no trace context', left(trace.traceparent, 100)),
            'Send a traceparent as W3C Trace Context has it, version 00, or none.');
    END IF;
    PERFORM FROM leaderboard.submission s WHERE s.id = trace.submission_id FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR015', format('submission %s does not exist', trace.submission_id), 'Store it first.');
    END IF;
    INSERT INTO runner.trace AS t (submission_id, traceparent) VALUES (trace.submission_id, trace.traceparent)
    ON CONFLICT DO NOTHING;
    RETURN trace.submission_id;
END
$$;
