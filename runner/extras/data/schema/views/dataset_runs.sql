-- A row per public run and case; one row without a case where a run has none.
CREATE OR REPLACE VIEW runner.dataset_runs AS
SELECT p.run_id, p.submission_id, p.leaderboard_id, p.problem_name, p.user_id, p.runner, p.mode, p.passed,
       CASE WHEN p.score_invalid_reason IS NULL THEN p.score_raw END AS score,
       p.score_raw, p.score_invalid_reason,
       c.case_index, c.spec, c.mean_ns, c.std_ns, c.best_ns, c.runs, c.sol,
       m.duration_s, m.gpu, m.torch, m.runtime, m.host_sha256,
       p.start_time, p.end_time
FROM runner.public_run p
CROSS JOIN LATERAL (
    SELECT CASE WHEN octet_length(p.meta ->> 'duration') <= 60
               AND p.meta ->> 'duration' ~ '^[0-9]+(\.[0-9]+)?([eE][-+]?[0-9][0-9]?)?$'
               THEN (p.meta ->> 'duration')::float8 END AS duration_s,
           p.system_info ->> 'gpu' AS gpu, p.system_info ->> 'torch' AS torch, p.system_info ->> 'runtime' AS runtime,
           -- The name itself stays in the database.
           encode(sha256(convert_to(p.system_info ->> 'hostname', 'UTF8')), 'hex') AS host_sha256
    OFFSET 0  -- once per run, not once per case
) AS m
LEFT JOIN LATERAL (
    -- Any program may have written these: what is no plain number is null. Patterns that count repetitions ({1,15})
    -- would take most of an export's time.
    SELECT n.i AS case_index, n.spec,
           CASE WHEN octet_length(n.mean) <= 60 AND n.mean ~ n.number THEN n.mean::float8 END AS mean_ns,
           CASE WHEN octet_length(n.std) <= 60 AND n.std ~ n.number THEN n.std::float8 END AS std_ns,
           CASE WHEN octet_length(n.best) <= 60 AND n.best ~ n.number THEN n.best::float8 END AS best_ns,
           CASE WHEN octet_length(n.runs) <= 15 AND n.runs ~ '^[0-9]+$' THEN n.runs::bigint END AS runs,
           CASE WHEN octet_length(n.sol) <= 60 AND n.sol ~ n.number THEN n.sol::float8 END AS sol
    FROM (
        SELECT k.i, k.place, p.result ->> (k.place || 'spec') AS spec, p.result ->> (k.place || 'mean') AS mean,
               p.result ->> (k.place || 'std') AS std, p.result ->> (k.place || 'best') AS best,
               p.result ->> (k.place || 'runs') AS runs, p.result ->> (k.place || 'sol') AS sol,
               '^[0-9]+(\.[0-9]+)?([eE][-+]?[0-9][0-9]?)?$' AS number
        FROM (SELECT i, concat(p.kind, '.', i, '.') AS place FROM generate_series(0, p.cases - 1) AS i OFFSET 0) AS k
        OFFSET 0  -- each text is looked up once
    ) AS n
    -- A run that stopped early announced more cases than it has.
    WHERE n.spec IS NOT NULL OR n.mean IS NOT NULL
       OR p.result ?| ARRAY[n.place || 'spec', n.place || 'mean', n.place || 'status']
) AS c ON true;
COMMENT ON VIEW runner.dataset_runs IS
    'A row per public run and case; scores and durations in seconds, times of a case in nanoseconds.';
