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
GRANT EXECUTE ON FUNCTION
    runner.claim(text, text[], integer[], double precision, text),
    runner.heartbeat(text, double precision, bigint[], integer[], text),
    runner.complete(jsonb),
    runner.take_check(text, text[], text),
    runner.complete_waiting(text, text, jsonb),
    runner.fail(bigint, integer, integer, text, text, jsonb),
    runner.release(bigint, integer, integer, text),
    runner.stopped(bigint, integer, integer),
    runner.reclaim(integer),
    runner.recover(text, bigint[], integer[], boolean, text),
    runner.reap(interval, integer),
    runner.register(text, text, jsonb, text, text[], text),
    runner.unregister(text, text),
    runner.publish_gpu_types(jsonb),
    runner.show_progress(bigint, integer, jsonb),
    runner.keep_file(bigint, integer, text, text, bytea),
    runner.is_owner() TO runner_daemon;

-- A frontend calls functions and reads views; it sees no secret seed, no task text, no code and no secret output. A
-- dashboard or a website's backup reads the same, and calls nothing.
GRANT USAGE ON SCHEMA leaderboard, runner TO runner_frontend, runner_readonly;
GRANT SELECT ON runner.status, runner.ranking, runner.final_ranking, runner.final_pair, runner.final_progress,
    runner.result,
    runner.demand, runner.gpu_type, runner.host, runner.host_key, runner.signed_result TO runner_frontend,
    runner_readonly;
-- A view calls functions as who reads it.
GRANT EXECUTE ON FUNCTION runner.tie_bound(bigint, bigint) TO runner_frontend, runner_readonly;
GRANT SELECT (id, name, deadline, description, visibility, creator_id, forum_id) ON leaderboard.leaderboard
    TO runner_frontend, runner_readonly;
GRANT SELECT ON leaderboard.gpu_type, leaderboard.templates TO runner_frontend, runner_readonly;
GRANT EXECUTE ON FUNCTION
    runner.submit(text, text, text, bytea, text, text[], text, integer, text, timestamptz, timestamptz, jsonb),
    runner.enqueue(bigint, text, text[], integer, jsonb),
    runner.cancel(bigint, text),
    runner.submit_batch(jsonb, text, text, text, jsonb, integer, integer, boolean, timestamptz, timestamptz, interval),
    runner.batch_results(text, text[], bigint, integer, text),
    runner.batch_progress(text, text),
    runner.cancel_batch(text, text),
    runner.validations(text, bigint, bigint),
    runner.validation_progress(bigint) TO runner_frontend;
-- A part of runner.final_ranking and runner.final_pair: who reads a view calls its functions.
GRANT EXECUTE ON FUNCTION runner.tie_bound(bigint, bigint) TO runner_frontend, runner_readonly;
-- The data export without code. A login that exports also needs SELECT (id, code, old_code) ON leaderboard.code_files.
GRANT SELECT ON runner.dataset_submissions, runner.dataset_ranking, runner.dataset_progression, runner.dataset_quality,
    runner.dataset_people, runner.dataset_runs, runner.dataset_leaderboards, runner.dataset_codes, runner.dataset_users,
    runner.entry, runner.entry_plain, runner.oddity_plain, runner.run_figures TO runner_readonly;

-- An operator may do what a frontend may. It also evaluates again, takes results out of the ranking, sets what ranks,
-- drains hosts, and sees what secret runs printed. It sees no secret
-- seed, no hidden case and no submitted code.
GRANT runner_frontend TO runner_operator;
GRANT EXECUTE ON FUNCTION
    runner.matching(bigint, text, text, timestamptz, timestamptz, text[], text[], text),
    runner.rerun(bigint, text, text, timestamptz, timestamptz, text[], text, integer, text[], text),
    runner.invalidate(bigint, text, text, timestamptz, timestamptz, text[], text, text[], text),
    runner.validate(text, text, boolean, boolean),
    runner.cancel_validations(bigint),
    runner.final(text, text, integer, integer, boolean),
    runner.cancel_final(text, text),
    runner.set_demand(text, text, double precision),
    runner.set_open_jobs(text, integer),
    runner.set_open_code(text, boolean),
    runner.set_open_items(text, text, bigint),
    runner.pause(text, text),
    runner.resume(text),
    runner.pause_board(text, text),
    runner.resume_board(text),
    runner.drain(text, text),
    runner.move_host(text, text),
    runner.revoke_key(text, text, timestamptz),
    runner.undrain(text),
    runner.add_webhook(text, text, text, text, text[], text),
    runner.remove_webhook(text),
    runner.test_webhook(text),
    runner.is_owner() TO runner_operator;
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
GRANT EXECUTE ON FUNCTION
    runner.approve_login(text, text, text, boolean),
    runner.set_token(text, text, text),
    runner.revoke_login(text) TO runner_operator;

-- The gateway (HTTP) may do what a frontend may. It also finds users by their credentials without reading any, shows
-- authors their code, and does what the admin routes offer. It sees no secret seed and nothing of a secret run but
-- mode, verdict and when its job ended.
GRANT runner_frontend TO runner_gateway;
GRANT EXECUTE ON FUNCTION
    runner.begin_login(text, text, text, text),
    runner.login_of(text[], text[], text),
    runner.join_board(text, text),
    runner.submit_late(text, text, text, bytea, text, text[], text),
    runner.delete_submission(bigint, text),
    runner.delete_board(text, boolean),
    runner.board_scores(integer, text, integer),
    runner.board_records(integer, text, integer),
    runner.set_open_code(text, boolean),
    runner.web_login(text, text, text),
    runner.attach_login(text, text),
    runner.admit_login(text, text, text),
    runner.validate(text, text, boolean, boolean),
    runner.final(text, text, integer, integer, boolean),
    runner.cancel_final(text, text) TO runner_gateway;
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
GRANT EXECUTE ON FUNCTION
    runner.before_submit(text, text, bytea),
    runner.delete_board(text, boolean),
    runner.is_odd(text) TO runner_discord;
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
GRANT EXECUTE ON FUNCTION
    runner.set_webhooks(jsonb),
    runner.derive_webhooks(),
    runner.claim_webhook(text[], uuid),
    runner.note_webhook(bigint, bigint, uuid, text, text, double precision) TO runner_webhook;
