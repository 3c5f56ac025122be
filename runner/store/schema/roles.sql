-- Roles without login, to be granted to the users that daemons, frontends and operators connect as. Safe to run again.
-- They get no rights but those that this file grants.
DO $roles$
DECLARE
    v_role text;
BEGIN
    FOREACH v_role IN ARRAY ARRAY[
        'daemon', 'frontend', 'operator', 'readonly', 'gateway', 'discord', 'kernelboard', 'webhook'
    ] LOOP
        v_role := 'runner_' || v_role;
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = v_role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
        END IF;
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA leaderboard, runner FROM %I', v_role);
        EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA leaderboard, runner FROM %I', v_role);
        EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA runner FROM %I', v_role);
    END LOOP;
END
$roles$;
REVOKE ALL ON SCHEMA leaderboard FROM runner_daemon;

-- A daemon does everything through functions, which compare the host with the session's login. It reads no table of
-- schema leaderboard, and of the queue only what its metrics and `kernel-runner check` tell.
GRANT USAGE ON SCHEMA runner TO runner_daemon;
GRANT SELECT ON runner.migration, runner.demand TO runner_daemon;
GRANT SELECT (gpu_type, state, created_at, ready) ON runner.job TO runner_daemon;
GRANT SELECT (name, login) ON runner.host TO runner_daemon;
GRANT EXECUTE ON FUNCTION runner.claim, runner.heartbeat, runner.complete, runner.complete_waiting, runner.take_check,
    runner.fail, runner.release, runner.stopped, runner.reclaim, runner.recover, runner.reap, runner.register,
    runner.unregister, runner.publish_gpu_types, runner.show_progress, runner.keep_file, runner.is_owner
    TO runner_daemon;

-- A frontend calls functions and reads views; it sees no secret seed, no task text, no code and no secret output. A
-- dashboard or a website's backup reads the same, and calls nothing.
GRANT USAGE ON SCHEMA leaderboard, runner TO runner_frontend, runner_readonly;
GRANT SELECT ON runner.status, runner.ranking, runner.final_ranking, runner.final_pair, runner.final_progress,
    runner.result,
    runner.demand, runner.gpu_type, runner.host, runner.host_key, runner.signed_result TO runner_frontend,
    runner_readonly;
-- A view calls functions as who reads it.
GRANT EXECUTE ON FUNCTION runner.tie_bound TO runner_frontend, runner_readonly;
GRANT SELECT (id, name, deadline, description, visibility, creator_id, forum_id) ON leaderboard.leaderboard
    TO runner_frontend, runner_readonly;
GRANT SELECT ON leaderboard.gpu_type, leaderboard.templates TO runner_frontend, runner_readonly;
GRANT EXECUTE ON FUNCTION runner.submit, runner.enqueue, runner.cancel, runner.submit_batch, runner.batch_results,
    runner.batch_progress, runner.cancel_batch, runner.validations, runner.validation_progress TO runner_frontend;
-- The data export without code. A login that exports also needs SELECT (id, code, old_code) ON leaderboard.code_files.
GRANT SELECT ON runner.dataset_submissions, runner.dataset_ranking, runner.dataset_progression, runner.dataset_quality,
    runner.dataset_people, runner.dataset_runs, runner.dataset_leaderboards, runner.dataset_codes, runner.dataset_users,
    runner.entry, runner.entry_plain, runner.oddity_plain, runner.run_figures TO runner_readonly;

-- An operator may do what a frontend may. It also evaluates again, takes results out of the ranking, sets what ranks,
-- drains hosts, and sees what secret runs printed. It sees no secret
-- seed, no hidden case and no submitted code.
GRANT runner_frontend TO runner_operator;
GRANT EXECUTE ON FUNCTION runner.matching, runner.rerun, runner.invalidate, runner.validate, runner.cancel_validations,
    runner.final, runner.cancel_final, runner.set_demand, runner.set_open_jobs, runner.set_open_code,
    runner.set_open_items, runner.pause, runner.resume, runner.pause_board, runner.resume_board, runner.drain,
    runner.move_host, runner.revoke_key, runner.undrain, runner.add_webhook, runner.remove_webhook, runner.test_webhook,
    runner.is_owner TO runner_operator;
GRANT SELECT ON ALL TABLES IN SCHEMA runner TO runner_operator;
-- It holds submitted code.
REVOKE SELECT ON runner.source FROM runner_operator;
-- It holds addresses that are secrets; runner.webhook_state has the rest.
REVOKE SELECT ON runner.webhook FROM runner_operator;
-- The other column holds hidden cases.
REVOKE SELECT ON runner.board FROM runner_operator;
REVOKE SELECT ON runner.web_login FROM runner_operator;
GRANT SELECT (user_id, provider, since) ON runner.web_login TO runner_operator;
GRANT SELECT (leaderboard_id, harness, timing, tolerance, ranked, max_open_jobs, paused, paused_since, open_code)
    ON runner.board TO runner_operator;
GRANT SELECT ON leaderboard.submission, leaderboard.submission_job_status, leaderboard.runs TO runner_operator;
GRANT SELECT (id, user_name, cli_valid, cli_auth_provider, created_at, is_banned) ON leaderboard.user_info
    TO runner_operator;
GRANT EXECUTE ON FUNCTION runner.approve_login, runner.set_token, runner.revoke_login TO runner_operator;

-- The gateway (HTTP) may do what a frontend may. It also finds users by their credentials without reading any, shows
-- authors their code, and does what the admin routes offer. It sees no secret seed and nothing of a secret run but
-- mode, verdict and when its job ended.
GRANT runner_frontend TO runner_gateway;
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

-- The Discord frontend may do what a frontend may, and what administrators order there. It shows tasks, and authors
-- their code. It sees no secret seed and no credential, and nothing of a secret run but mode and verdict.
GRANT runner_frontend TO runner_discord;
GRANT EXECUTE ON FUNCTION runner.before_submit, runner.delete_board, runner.is_odd TO runner_discord;
GRANT SELECT (task) ON leaderboard.leaderboard TO runner_discord;
GRANT SELECT ON leaderboard.submission, leaderboard.submission_job_status, leaderboard.code_files,
    leaderboard.rate_limit,
    leaderboard.leaderboard_invite, leaderboard.leaderboard_invite_scope TO runner_discord;
GRANT SELECT (id, user_name, is_banned), UPDATE (is_banned) ON leaderboard.user_info TO runner_discord;
GRANT SELECT ON runner.migration, runner.seen_run, runner.public_profile TO runner_discord;
GRANT SELECT, INSERT, DELETE ON runner.intake_stop TO runner_discord;
GRANT SELECT, INSERT, UPDATE ON runner.discord_submission TO runner_discord;

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

-- A sender of webhooks calls functions and reads nothing else.
GRANT USAGE ON SCHEMA runner TO runner_webhook;
GRANT SELECT ON runner.migration TO runner_webhook;
GRANT EXECUTE ON FUNCTION runner.set_webhooks, runner.derive_webhooks, runner.claim_webhook, runner.note_webhook TO
    runner_webhook;
