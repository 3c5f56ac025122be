-- Says in a sentence what is wrong with the settings of an item; NULL: nothing. The harness checks them again, and takes
-- 5.0 for no whole number.
CREATE OR REPLACE FUNCTION runner.settings_fault(settings jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_key text;
    v_value jsonb;
    v_from numeric;
    v_to numeric;
    v_whole boolean;
BEGIN
    IF jsonb_typeof(settings_fault.settings) <> 'object' THEN
        RETURN format('settings are of type %s, expected an object', jsonb_typeof(settings_fault.settings));
    END IF;
    FOR v_key, v_value IN SELECT e.key, e.value FROM jsonb_each(settings_fault.settings) AS e (key, value) LOOP
        v_from := NULL;
        CASE v_key
            WHEN 'inputs' THEN v_from := 1; v_to := 20; v_whole := true;
            WHEN 'timed_calls' THEN v_from := 0; v_to := 1000; v_whole := true;
            WHEN 'timeout_s' THEN v_from := 1; v_to := 3600; v_whole := false;
            WHEN 'rtol' THEN v_from := 0; v_to := 1; v_whole := false;
            WHEN 'atol' THEN v_from := 0; v_to := 1; v_whole := false;
            WHEN 'precision' THEN
                IF v_value <> 'null' AND NOT v_value IN ('"float32"', '"float16"', '"bfloat16"') THEN
                    RETURN 'setting precision is not null, float32, float16 or bfloat16';
                END IF;
            WHEN 'baseline' THEN
                IF NOT v_value IN ('"eager"', '"compile"', '"tf32"', '"graphs"') THEN
                    RETURN 'setting baseline is not eager, compile, tf32 or graphs';
                END IF;
            WHEN 'further_baselines' THEN
                IF jsonb_typeof(v_value) <> 'array' OR NOT v_value <@ '["eager", "compile", "tf32", "graphs"]' THEN
                    RETURN 'setting further_baselines is not a list of eager, compile, tf32 and graphs';
                END IF;
            WHEN 'require_custom_kernel', 'separate_containers', 'perturb' THEN
                IF jsonb_typeof(v_value) <> 'boolean' THEN
                    RETURN format('setting %s is neither true nor false', v_key);
                END IF;
            ELSE RETURN format('setting %s is not known', left(runner.harmless(v_key), 100));
        END CASE;
        IF v_from IS NOT NULL AND (jsonb_typeof(v_value) = 'null') AND v_key IN ('rtol', 'atol') THEN
            CONTINUE;
        END IF;
        IF v_from IS NOT NULL AND jsonb_typeof(v_value) <> 'number' THEN
            RETURN format('setting %s is not a number', v_key);
        END IF;
        IF v_from IS NOT NULL AND (NOT v_value::numeric BETWEEN v_from AND v_to
                                   OR v_whole AND v_value::text LIKE '%.%') THEN
            RETURN format('setting %s is %s, expected %s from %s to %s', v_key, left(v_value::text, 50),
                          CASE WHEN v_whole THEN 'a whole number' ELSE 'a number' END, v_from, v_to);
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
