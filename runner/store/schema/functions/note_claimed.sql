-- Remembers the turns of jobs that are claimed ahead of their clock. A share that another transaction holds is passed over.
CREATE OR REPLACE FUNCTION runner.note_claimed(job_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
BEGIN
    FOR v_job IN
        SELECT j.user_id, j.gpu_type, j.priority, j.turn FROM runner.job j WHERE j.id = ANY (note_claimed.job_ids) ORDER BY j.id
    LOOP
        UPDATE runner.share t SET claimed = greatest(t.claimed, v_job.turn)
        FROM (SELECT s.user_id, s.gpu_type, s.priority FROM runner.share s
              WHERE s.user_id = v_job.user_id AND s.gpu_type = v_job.gpu_type AND s.priority = v_job.priority
              FOR NO KEY UPDATE SKIP LOCKED) AS free
        WHERE t.user_id = free.user_id AND t.gpu_type = free.gpu_type AND t.priority = free.priority;
    END LOOP;
END
$$;
