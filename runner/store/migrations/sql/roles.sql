-- Two roles without login, to be granted to the users that daemons and frontends connect as. Safe to run again.
DO $roles$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'runner_daemon') THEN
        CREATE ROLE runner_daemon NOLOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'runner_frontend') THEN
        CREATE ROLE runner_frontend NOLOGIN;
    END IF;
END
$roles$;

-- A daemon reads what a job consists of and writes what came of it.
GRANT USAGE ON SCHEMA leaderboard, runner TO runner_daemon;
GRANT SELECT ON ALL TABLES IN SCHEMA leaderboard TO runner_daemon;
GRANT INSERT ON leaderboard.runs, leaderboard.submission_job_status TO runner_daemon;
GRANT UPDATE ON leaderboard.submission, leaderboard.submission_job_status TO runner_daemon;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA leaderboard, runner TO runner_daemon;
GRANT SELECT, INSERT, UPDATE, DELETE ON runner.job, runner.job_run, runner.stale_result, runner.artifact, runner.host,
    runner.gpu_type TO runner_daemon;
GRANT SELECT ON runner.board, runner.status, runner.ranking, runner.result TO runner_daemon;
GRANT EXECUTE ON FUNCTION runner.settle(integer), runner.cancel(bigint, text) TO runner_daemon;

-- A frontend calls functions and reads views; it sees no secret seed, no task text, no code and no secret output.
GRANT USAGE ON SCHEMA leaderboard, runner TO runner_frontend;
GRANT EXECUTE ON FUNCTION
    runner.submit(text, text, text, bytea, text, text[], text, integer, text),
    runner.enqueue(bigint, text, text[], integer),
    runner.cancel(bigint, text) TO runner_frontend;
GRANT SELECT ON runner.status, runner.ranking, runner.result, runner.gpu_type, runner.host TO runner_frontend;
GRANT SELECT (id, name, deadline, description, visibility, creator_id, forum_id) ON leaderboard.leaderboard
    TO runner_frontend;
GRANT SELECT ON leaderboard.gpu_type, leaderboard.templates TO runner_frontend;
