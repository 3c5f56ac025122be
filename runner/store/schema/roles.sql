-- Roles without login, to be granted to the users that daemons, frontends and operators connect as. Safe to run again,
-- also by an owner who did not make the roles: those that are there, and memberships, are left alone.
-- They get no rights but those that this file grants, and those of the guests, which follow.
DO $roles$
DECLARE
    v_role text;
    v_roles text[] := ARRAY['runner_daemon', 'runner_frontend', 'runner_operator', 'runner_readonly', 'runner_gateway',
                            'runner_discord', 'runner_kernelboard', 'runner_webhook'];
BEGIN
    FOREACH v_role IN ARRAY v_roles LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = v_role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
        END IF;
        -- These may do what a frontend may.
        IF v_role IN ('runner_operator', 'runner_gateway', 'runner_discord')
            AND NOT pg_has_role(v_role, 'runner_frontend', 'MEMBER') THEN
            EXECUTE format('GRANT runner_frontend TO %I', v_role);
        END IF;
    END LOOP;
    -- Tables that another login has made there are its own.
    EXECUTE (SELECT format('REVOKE ALL ON %s FROM %s', string_agg(c.oid::regclass::text, ', '),
                           array_to_string(v_roles, ', '))
             FROM pg_catalog.pg_class c
             WHERE c.relnamespace IN ('leaderboard'::regnamespace, 'runner'::regnamespace)
               AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND pg_has_role(c.relowner, 'USAGE'));
    EXECUTE 'REVOKE ALL ON ALL FUNCTIONS IN SCHEMA runner FROM ' || array_to_string(v_roles, ', ');
END
$roles$;
REVOKE ALL ON SCHEMA leaderboard FROM runner_daemon;

-- A daemon does everything through functions, which compare the host with the session's login. It reads no table of
-- schema leaderboard, and of the queue only what its metrics and `kernel-runner check` tell.
GRANT USAGE ON SCHEMA runner TO runner_daemon;
GRANT SELECT ON runner.migration, runner.demand TO runner_daemon;
GRANT SELECT (gpu_type, state, created_at, not_before, ready) ON runner.job TO runner_daemon;
GRANT SELECT (name, login) ON runner.host TO runner_daemon;
GRANT EXECUTE ON FUNCTION runner.claim, runner.heartbeat, runner.complete, runner.complete_waiting, runner.take_check,
    runner.fail, runner.release, runner.stopped, runner.reclaim, runner.recover, runner.reap, runner.register,
    runner.unregister, runner.publish_gpu_types, runner.show_progress, runner.keep_file, runner.is_owner
    TO runner_daemon;

-- A frontend calls functions and reads views; it sees no secret seed, no task text, no code and no secret output. A
-- dashboard or a website's backup reads the same, and calls nothing.
GRANT USAGE ON SCHEMA leaderboard, runner TO runner_frontend, runner_readonly;
GRANT SELECT ON runner.status, runner.ranking, runner.final_pair, runner.result, runner.demand, runner.gpu_type,
    runner.host, runner.host_key TO runner_frontend, runner_readonly;
-- A view calls functions as who reads it.
GRANT EXECUTE ON FUNCTION runner.tie_bound TO runner_frontend, runner_readonly;
GRANT SELECT (id, name, deadline, description, visibility, creator_id, forum_id) ON leaderboard.leaderboard
    TO runner_frontend, runner_readonly;
GRANT SELECT ON leaderboard.gpu_type, leaderboard.templates TO runner_frontend, runner_readonly;
-- The list of leaderboards counts by it.
GRANT SELECT (leaderboard_id) ON leaderboard.submission TO runner_frontend, runner_readonly;
GRANT EXECUTE ON FUNCTION runner.submit, runner.enqueue, runner.cancel, runner.validations TO runner_frontend;

-- An operator may do what a frontend may. It also pauses GPU types, drains hosts, and sees what secret runs printed. It
-- sees no secret seed, no hidden case and no submitted code.
GRANT EXECUTE ON FUNCTION runner.pause, runner.resume, runner.drain, runner.move_host, runner.revoke_key, runner.undrain,
    runner.is_owner TO runner_operator;
GRANT SELECT ON ALL TABLES IN SCHEMA runner TO runner_operator;
-- It holds submitted code.
REVOKE SELECT ON runner.source FROM runner_operator;
-- The other column holds hidden cases.
REVOKE SELECT ON runner.board FROM runner_operator;
GRANT SELECT (leaderboard_id, harness, timing, tolerance, ranked, max_open_jobs, paused, paused_since, open_code)
    ON runner.board TO runner_operator;
GRANT SELECT ON leaderboard.submission, leaderboard.submission_job_status, leaderboard.runs TO runner_operator;
GRANT SELECT (id, user_name, cli_valid, cli_auth_provider, created_at, is_banned) ON leaderboard.user_info
    TO runner_operator;
