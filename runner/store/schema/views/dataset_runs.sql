-- A row per public run and case; one row without a case where a run has none.
CREATE OR REPLACE VIEW runner.dataset_runs AS
SELECT p.run_id, p.submission_id, p.leaderboard_id, p.problem_name, p.user_id, p.runner, p.mode, p.passed,
       CASE WHEN p.score_invalid_reason IS NULL THEN p.score_raw END AS score,
       p.score_raw, p.score_invalid_reason,
       c.case_index, c.spec, c.mean_ns, c.std_ns, c.best_ns, c.runs, c.sol,
       CASE WHEN p.meta ->> 'duration' ~ '^[0-9]{1,15}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?$'
           THEN (p.meta ->> 'duration')::float8 END AS duration_s,
       p.system_info ->> 'gpu' AS gpu, p.system_info ->> 'torch' AS torch, p.system_info ->> 'runtime' AS runtime,
       -- The name itself stays in the database.
       encode(sha256(convert_to(p.system_info ->> 'hostname', 'UTF8')), 'hex') AS host_sha256,
       p.start_time, p.end_time
FROM runner.public_run p
LEFT JOIN LATERAL (
    SELECT i AS case_index, p.result ->> n.spec AS spec,
           -- Any program may have written these: what is no plain number is null.
           CASE WHEN p.result ->> n.mean ~ n.number THEN (p.result ->> n.mean)::float8 END AS mean_ns,
           CASE WHEN p.result ->> n.std ~ n.number THEN (p.result ->> n.std)::float8 END AS std_ns,
           CASE WHEN p.result ->> n.best ~ n.number THEN (p.result ->> n.best)::float8 END AS best_ns,
           CASE WHEN p.result ->> n.runs ~ '^[0-9]{1,15}$' THEN (p.result ->> n.runs)::bigint END AS runs,
           CASE WHEN p.result ->> n.sol ~ n.number THEN (p.result ->> n.sol)::float8 END AS sol
    FROM generate_series(0, p.cases - 1) AS i
    CROSS JOIN LATERAL (
        SELECT concat(p.kind, '.', i, '.spec') AS spec, concat(p.kind, '.', i, '.mean') AS mean,
               concat(p.kind, '.', i, '.std') AS std, concat(p.kind, '.', i, '.best') AS best,
               concat(p.kind, '.', i, '.runs') AS runs, concat(p.kind, '.', i, '.sol') AS sol,
               concat(p.kind, '.', i, '.status') AS status,
               '^[0-9]{1,15}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?$' AS number
    ) AS n
    -- A run that stopped early announced more cases than it has.
    WHERE p.result ?| ARRAY[n.spec, n.mean, n.status]
) AS c ON true;
COMMENT ON VIEW runner.dataset_runs IS
    'A row per public run and case; scores and durations in seconds, times of a case in nanoseconds.';
