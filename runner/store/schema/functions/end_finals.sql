-- Writes what came of those among these jobs that are evaluations of finals and have ended, and lets their finals go
-- on. A submission that does not pass is out of its final. A fault of ours leaves a round without its score. The caller
-- holds the locks on submissions and jobs.
CREATE OR REPLACE FUNCTION runner.end_finals(job_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
    v_final_ids bigint[] := '{}';
BEGIN
    FOR v_job IN
        SELECT j.final_id, j.finalist, j.round, j.only_host, j.validates, j.state, j.verdict,
               (j.report ->> 'score_s')::double precision AS score, (j.report ->> 'p25_s')::double precision AS p25
        FROM unnest(end_finals.job_ids) AS u (id)
        CROSS JOIN LATERAL (SELECT o.* FROM runner.job o WHERE o.id = u.id OFFSET 0) AS j
        WHERE j.final_id IS NOT NULL ORDER BY j.id
    LOOP
        v_final_ids := v_final_ids || v_job.final_id;
        IF v_job.verdict = 'accepted' THEN
            -- An eval program reports no quartiles.
            INSERT INTO runner.final_score (final_id, number, round, host, score, p25)
            SELECT v_job.final_id, v_job.finalist, v_job.round, v_job.only_host, v_job.score,
                   coalesce(v_job.p25, v_job.score)
            WHERE v_job.score > 0;
        ELSIF v_job.verdict <> 'internal_error' THEN
            UPDATE runner.finalist f SET fault = format('%s in round %s', v_job.verdict, v_job.round)
            WHERE f.final_id = v_job.final_id AND f.submission_id = v_job.validates AND f.fault IS NULL;
        END IF;
    END LOOP;
    PERFORM runner.advance_finals(v_final_ids);
END
$$;
