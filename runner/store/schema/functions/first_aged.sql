-- Locks and returns a job that has waited for an hour behind a higher class of these GPU types. Of the first jobs of all such
-- classes it is the one that has waited longest, so no class waits for ever. Part of runner.claim, with the same settings.
CREATE OR REPLACE FUNCTION runner.first_aged(host text, gpu_types text[], free integer[], at_most integer, unranked text[])
RETURNS TABLE (id bigint, submission_id integer, gpu_type text, priority integer, turn bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_type record;
    v_head record;
    v_best record;
    v_created_at timestamptz;
    v_oldest timestamptz;
    v_highest integer;
BEGIN
    IF first_aged.gpu_types <@ first_aged.unranked THEN
        RETURN;
    END IF;
    FOR v_type IN
        SELECT t.gpu_type FROM unnest(first_aged.gpu_types, first_aged.free) AS t (gpu_type, free) WHERE t.free > 0
    LOOP
        SELECT h.priority INTO v_head FROM runner.head(first_aged.host, v_type.gpu_type, false) AS h;
        v_highest := greatest(v_highest, v_head.priority);
    END LOOP;
    FOR v_type IN
        SELECT t.gpu_type FROM unnest(first_aged.gpu_types, first_aged.free) AS t (gpu_type, free)
        WHERE t.free > 0 AND NOT t.gpu_type = ANY (first_aged.unranked)
    LOOP
        SELECT h.priority, h.turn, h.id INTO v_head FROM runner.head(first_aged.host, v_type.gpu_type, false) AS h;
        WHILE v_head.id IS NOT NULL LOOP
            IF v_head.priority < v_highest THEN
                SELECT q.created_at INTO v_created_at FROM runner.job q WHERE q.id = v_head.id;
                IF v_created_at < now() - interval '1 hour' AND (v_oldest IS NULL OR v_created_at < v_oldest) THEN
                    v_oldest := v_created_at;
                    SELECT v_type.gpu_type, v_head.priority, v_head.turn, v_head.id INTO v_best;
                END IF;
            END IF;
            SELECT h.priority, h.turn, h.id INTO v_head
            FROM runner.head(first_aged.host, v_type.gpu_type, false, v_head.priority) AS h;
        END LOOP;
    END LOOP;
    IF v_oldest IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT f.id, f.submission_id, v_best.gpu_type, f.priority, f.turn
    FROM runner.take_first(first_aged.host, v_best.gpu_type, least(1, first_aged.at_most), false,
                           v_best.priority, v_best.turn, v_best.id, true) AS f;
END
$$;
