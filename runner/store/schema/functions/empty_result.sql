-- The result of an item that was not evaluated, with all its keys.
CREATE OR REPLACE FUNCTION runner.empty_result(verdict text, stage text, message text) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_build_object(
        'verdict', verdict, 'stage', stage, 'compiled', NULL, 'correct', NULL, 'kb_correct', NULL,
        'message', left(message, 4000)) || jsonb_build_object(
        'reference_ns', NULL, 'candidate_ns', NULL, 'speedup', NULL, 'speedup_low', NULL, 'speedup_high', NULL,
        'speedup_device', NULL, 'timing', NULL, 'reference_stats', NULL, 'candidate_stats', NULL,
        'baselines', '{}'::jsonb, 'device', NULL, 'software', NULL, 'max_abs_error', NULL, 'max_rel_error', NULL,
        'failing_input', NULL,
        'weights', 'none', 'perturbed', false, 'distributions', '[]'::jsonb, 'mode', NULL, 'random', false,
        'tolerance', NULL, 'degenerate', false, 'flags', '[]'::jsonb, 'kernel_use', NULL, 'memory_bytes', NULL,
        'reference_memory_bytes', NULL, 'reference_cached', false, 'build_ms', NULL, 'eval_ms', NULL)
$$;
