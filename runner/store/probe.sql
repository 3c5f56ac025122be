-- name: server
-- What answers here.
SELECT current_setting('server_version') AS version, current_database()::text AS database,
       to_regclass('runner.migration') IS NOT NULL AS has_versions

-- name: version
-- The last migration applied.
SELECT version_num::text AS version FROM runner.migration

-- name: call
-- A notification on the caller's own channel.
SELECT pg_notify(%(channel)s::text, '')
