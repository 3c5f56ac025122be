-- As runner.submit, by an operator for a user: the leaderboard's deadline does not count. All else does.
CREATE OR REPLACE FUNCTION runner.submit_late(
    leaderboard text,
    user_id text,
    file_name text,
    code bytea,
    mode text,
    gpu_types text[],
    idempotency_key text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_submission_id bigint;
BEGIN
    -- For check_entry, which believes it of a login that may call this function, and of no other.
    PERFORM set_config('runner.late', 'on', true);
    v_submission_id := runner.submit(
        leaderboard => submit_late.leaderboard, user_id => submit_late.user_id, file_name => submit_late.file_name,
        code => submit_late.code, mode => submit_late.mode, gpu_types => submit_late.gpu_types,
        idempotency_key => submit_late.idempotency_key);
    PERFORM set_config('runner.late', '', true);
    RETURN v_submission_id;
END
$$;
