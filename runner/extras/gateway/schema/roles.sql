-- The gateway (HTTP) may do what a frontend may. It also finds users by their credentials without reading any, shows
-- authors their code, and does what the admin routes offer. It sees no secret seed and nothing of a secret run but
-- mode, verdict and when its job ended.
GRANT EXECUTE ON FUNCTION runner.begin_login, runner.login_of, runner.join_board, runner.submit_late,
    runner.delete_submission, runner.delete_board, runner.board_scores, runner.board_records, runner.set_open_code,
    runner.web_login, runner.attach_login, runner.admit_login, runner.validate, runner.final, runner.cancel_final TO
    runner_gateway;
GRANT SELECT (task), UPDATE (visibility) ON leaderboard.leaderboard TO runner_gateway;
GRANT SELECT ON leaderboard.submission, leaderboard.submission_job_status, leaderboard.code_files TO runner_gateway;
GRANT SELECT ON runner.seen_run, runner.open_board, runner.open_code TO runner_gateway;
GRANT SELECT (id, user_name, is_banned), UPDATE (is_banned) ON leaderboard.user_info TO runner_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE ON leaderboard.rate_limit TO runner_gateway;
GRANT SELECT, INSERT, DELETE ON leaderboard.leaderboard_invite TO runner_gateway;
GRANT SELECT, INSERT ON leaderboard.leaderboard_invite_scope TO runner_gateway;
-- Whatever KernelBot called them; identity columns need no right.
DO $sequences$
DECLARE
    v_sequence text;
BEGIN
    FOR v_sequence IN
        SELECT pg_get_serial_sequence(format('leaderboard.%I', t), 'id')
        FROM unnest(ARRAY['rate_limit', 'leaderboard_invite']) AS t
    LOOP
        IF v_sequence IS NOT NULL THEN
            EXECUTE format('GRANT USAGE ON SEQUENCE %s TO runner_gateway', v_sequence);
        END IF;
    END LOOP;
END
$sequences$;
GRANT SELECT, INSERT, DELETE ON runner.intake_stop TO runner_gateway;
GRANT SELECT ON runner.migration, runner.public_profile, runner.open_batch TO runner_gateway;
GRANT SELECT (job_id) ON runner.receipt TO runner_gateway;
GRANT SELECT (id, submission_id, gpu_type, mode, secret, state, verdict, lease_owner, host, created_at, finished_at,
              retired_at) ON runner.job TO runner_gateway;

-- An operator gives and ends logins.
GRANT EXECUTE ON FUNCTION runner.approve_login, runner.set_token, runner.revoke_login TO runner_operator;
-- Sessions of browsers are signed with a digest of the other column.
REVOKE SELECT ON runner.web_login FROM runner_operator;
GRANT SELECT (user_id, provider, since) ON runner.web_login TO runner_operator;

-- kernelboard, which reads schema leaderboard itself and logs its users in. Of the columns it reads, it gets those; of
-- runs also the secret rows, which it reads by a condition of its own.
GRANT USAGE ON SCHEMA leaderboard TO runner_kernelboard;
GRANT SELECT (id, name, deadline, task, creator_id, forum_id, description, visibility) ON leaderboard.leaderboard
    TO runner_kernelboard;
GRANT SELECT (id, submission_id, start_time, end_time, mode, secret, runner, score, passed, compilation, meta, result)
    ON leaderboard.runs TO runner_kernelboard;
GRANT SELECT (id, user_name, web_auth_id), INSERT (id, user_name, web_auth_id), UPDATE (user_name, web_auth_id)
    ON leaderboard.user_info TO runner_kernelboard;
GRANT SELECT ON leaderboard.gpu_type, leaderboard.templates, leaderboard.submission, leaderboard.submission_job_status,
    leaderboard.code_files TO runner_kernelboard;
-- A database that KernelBot made has these only since its thirtieth migration.
DO $roles$
BEGIN
    IF to_regclass('leaderboard.submission_validation') IS NOT NULL THEN
        GRANT SELECT ON leaderboard.submission_validation TO runner_kernelboard;
    END IF;
END
$roles$;
