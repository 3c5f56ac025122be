-- Finds the first ready job of a GPU type that a host may claim, and its place. `unranked`: only jobs whose times do not
-- count. `below`: only classes of lower priority. Part of runner.claim: it is planned with the settings of runner.claim.
--
-- Behind a held snapshot the entries of jobs that are gone stay in the index, all of them before the first job that waits.
-- So each class is entered at its mark. A class without a mark, of which hardly a job was claimed, is entered at its
-- start.
CREATE OR REPLACE FUNCTION runner.head(
    host text, gpu_type text, unranked boolean, below integer DEFAULT 1001,
    OUT priority integer, OUT turn bigint, OUT id bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    -- Priorities are from -1000 to 1000.
    v_below integer := head.below;
    v_mark record;
BEGIN
    LOOP
        SELECT m.priority, m.turn, m.job_id INTO v_mark FROM runner.mark m
        WHERE m.gpu_type = head.gpu_type AND m.priority < v_below
        ORDER BY m.gpu_type DESC, m.priority DESC, m.seq DESC LIMIT 1;
        IF head.unranked THEN
            SELECT q.priority, q.turn, q.id INTO head.priority, head.turn, head.id FROM runner.job q
            WHERE q.state = 'queued' AND q.ready AND q.mode IN ('test', 'benchmark', 'profile')
              AND q.gpu_type = head.gpu_type
              AND (- q.priority) > - v_below AND (- q.priority) < - coalesce(v_mark.priority, -1001)
              AND runner.may_take(q, head.host)
            ORDER BY (- q.priority), q.turn, q.id LIMIT 1;
        ELSE
            SELECT q.priority, q.turn, q.id INTO head.priority, head.turn, head.id FROM runner.job q
            WHERE q.state = 'queued' AND q.ready AND q.gpu_type = head.gpu_type
              AND q.priority < v_below AND q.priority > coalesce(v_mark.priority, -1001)
              AND runner.may_take(q, head.host)
            ORDER BY q.priority DESC, q.turn, q.id LIMIT 1;
        END IF;
        IF head.id IS NOT NULL OR v_mark.priority IS NULL THEN
            RETURN;
        END IF;
        IF head.unranked THEN
            SELECT q.priority, q.turn, q.id INTO head.priority, head.turn, head.id FROM runner.job q
            WHERE q.state = 'queued' AND q.ready AND q.mode IN ('test', 'benchmark', 'profile')
              AND q.gpu_type = head.gpu_type AND (- q.priority) = - v_mark.priority
              AND (q.turn, q.id) >= (v_mark.turn, v_mark.job_id)
              AND runner.may_take(q, head.host)
            ORDER BY q.turn, q.id LIMIT 1;
        ELSE
            SELECT q.priority, q.turn, q.id INTO head.priority, head.turn, head.id FROM runner.job q
            WHERE q.state = 'queued' AND q.ready AND q.gpu_type = head.gpu_type AND q.priority = v_mark.priority
              AND (q.turn, q.id) >= (v_mark.turn, v_mark.job_id)
              AND runner.may_take(q, head.host)
            ORDER BY q.turn, q.id LIMIT 1;
        END IF;
        IF head.id IS NOT NULL THEN
            RETURN;
        END IF;
        v_below := v_mark.priority;
    END LOOP;
END
$$;
