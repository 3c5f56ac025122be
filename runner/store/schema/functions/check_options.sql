-- Raises an error unless the options are those of a profile and can be met on these GPU types of the leaderboard. They
-- are an object with any of
--   benchmark    the one benchmark that is profiled, counted from 0; without it all are
--   kernel       which kernels Nsight Compute captures: a name, or `regex:` and an expression; without it all are
--   kernel_base  which name is compared: function (the default), demangled or mangled
--   launches     how many launches at most are captured, by default 10
CREATE OR REPLACE FUNCTION runner.check_options(leaderboard_id integer, mode text, gpu_types text[], options jsonb)
RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_key text;
    v_value jsonb;
    v_text text;
    v_number numeric;
    v_expected text;
    v_task jsonb;
    v_extra jsonb;
    v_gpu_type text;
    v_benchmarks jsonb;
    v_count integer;
BEGIN
    IF check_options.options IS NULL THEN
        RETURN;
    END IF;
    IF check_options.mode <> 'profile' THEN
        PERFORM runner.refuse('KR034', format('mode %s takes no options', check_options.mode),
            'Leave them out, or choose mode profile.');
    END IF;
    IF jsonb_typeof(check_options.options) <> 'object' THEN
        PERFORM runner.refuse('KR034',
            format('the options are of type %s, expected an object', jsonb_typeof(check_options.options)),
            'Give an object such as {"benchmark": 0}.');
    END IF;
    FOR v_key, v_value IN SELECT e.key, e.value FROM jsonb_each(check_options.options) AS e (key, value) LOOP
        v_number := CASE jsonb_typeof(v_value) WHEN 'number' THEN v_value::numeric END;
        v_text := CASE jsonb_typeof(v_value) WHEN 'string' THEN v_value #>> '{}' END;
        v_expected := NULL;
        CASE v_key
            WHEN 'benchmark' THEN
                IF (v_number >= 0 AND v_number % 1 = 0) IS NOT TRUE THEN
                    v_expected := 'the number of a benchmark, counted from 0';
                END IF;
            WHEN 'kernel' THEN
                IF (length(v_text) BETWEEN 1 AND 1024 AND NOT runner.is_odd(v_text) AND v_text !~ '^-|^regex:$')
                   IS NOT TRUE THEN
                    v_expected := 'a name, or regex: and an expression, of 1 to 1024 characters';
                END IF;
            WHEN 'kernel_base' THEN
                IF (v_text IN ('function', 'demangled', 'mangled')) IS NOT TRUE THEN
                    v_expected := 'function, demangled or mangled';
                END IF;
            WHEN 'launches' THEN
                IF (v_number BETWEEN 1 AND 10000 AND v_number % 1 = 0) IS NOT TRUE THEN
                    v_expected := 'a whole number from 1 to 10000';
                END IF;
            ELSE
                PERFORM runner.refuse('KR034', format('option %s is unknown', left(v_key, 100)),
                    'Choose from: benchmark, kernel, kernel_base, launches.');
        END CASE;
        IF v_expected IS NOT NULL THEN
            PERFORM runner.refuse('KR034',
                format('option %s is %s, expected %s', v_key, left(v_value::text, 100), v_expected), 'Correct it.');
        END IF;
    END LOOP;
    SELECT l.task, b.extra INTO v_task, v_extra
    FROM leaderboard.leaderboard l LEFT JOIN runner.board b ON b.leaderboard_id = l.id
    WHERE l.id = check_options.leaderboard_id;
    FOREACH v_gpu_type IN ARRAY check_options.gpu_types LOOP
        IF check_options.options ?| ARRAY['kernel', 'kernel_base', 'launches']
           AND (v_task -> 'multi_gpu' IN ('true', '1')
                OR EXISTS (SELECT FROM runner.gpu_type g
                           WHERE v_gpu_type = ANY (g.name || g.aliases) AND lower(g.vendor) <> 'nvidia')) THEN
            PERFORM runner.refuse('KR034',
                format('Nsight Compute captures tasks of one NVIDIA device, not this task on %s', v_gpu_type),
                'Leave kernel, kernel_base and launches out: mode profile then gives torch''s profile.');
        END IF;
        v_benchmarks := coalesce(nullif(v_extra #> ARRAY['cases', v_gpu_type, 'benchmarks'], 'null'),
            v_task -> 'benchmarks');
        -- Other programs write tasks, too.
        v_count := CASE jsonb_typeof(v_benchmarks) WHEN 'array' THEN jsonb_array_length(v_benchmarks) ELSE 0 END;
        IF (check_options.options ->> 'benchmark')::numeric >= v_count THEN
            PERFORM runner.refuse('KR034',
                format('there is no benchmark %s on %s', check_options.options ->> 'benchmark', v_gpu_type),
                format('The task has %s there, counted from 0.', v_count));
        END IF;
    END LOOP;
END
$$;
