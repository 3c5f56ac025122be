-- name: server
-- What answers here.
SELECT current_setting('server_version') AS version, current_database()::text AS database,
       to_regclass('runner.migration') IS NOT NULL AS has_versions

-- name: version
-- The last migration applied.
SELECT version_num::text AS version FROM runner.migration

-- name: hear
-- Subscribes to the calls of checks.
LISTEN runner_check

-- name: call
-- Calls once; every check that listens hears it.
SELECT pg_notify('runner_check', %(payload)s::text)
