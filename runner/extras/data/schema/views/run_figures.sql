-- What the cases of a public run with a score say of it: nothing here depends on another run or submission.
--
-- These figures are most of the cost of the views runner.dataset_*.
CREATE OR REPLACE VIEW runner.run_figures AS
SELECT p.run_id, p.submission_id, p.leaderboard_id, c.highest_sol,
       -- The geometric mean over the cases.
       CASE WHEN c.all_positive AND p.result ? 'benchmark.0.sol' THEN c.sol END AS sol,
       -- The score by `ranking_by` over the means of the cases.
       e.expected,
       p.score_invalid_reason IS NULL AND c.highest_sol > 1 AS faster_than_light,
       p.score_invalid_reason IS NULL AND abs(p.score_raw - e.expected) > 1e-6 * e.expected AS score_differs
FROM runner.public_run p
JOIN leaderboard.leaderboard l ON l.id = p.leaderboard_id
CROSS JOIN LATERAL (
    SELECT max(x.sol) AS highest_sol, bool_and(x.sol > 0) AS all_positive,
           exp(avg(ln(CASE WHEN x.sol > 0 THEN x.sol END))) AS sol,
           CASE WHEN count(*) = count(x.mean) THEN avg(x.mean) / 1e9 END AS mean,
           CASE WHEN count(*) = count(*) FILTER (WHERE x.mean > 0)
               THEN exp(avg(CASE WHEN x.mean > 0 THEN ln(x.mean) END)) / 1e9 END AS geom,
           (array_agg(x.mean ORDER BY x.i DESC))[1] / 1e9 AS last
    FROM (
        SELECT n.i,
               CASE WHEN octet_length(n.mean) <= 60 AND n.mean ~ n.number THEN n.mean::float8 END AS mean,
               CASE WHEN octet_length(n.sol) <= 60 AND n.sol ~ n.number THEN n.sol::float8 END AS sol
        FROM (
            SELECT i, p.result ->> concat('benchmark.', i, '.mean') AS mean,
                   p.result ->> concat('benchmark.', i, '.sol') AS sol,
                   '^[0-9]+(\.[0-9]+)?([eE][-+]?[0-9][0-9]?)?$' AS number
            FROM generate_series(0, p.cases - 1) AS i
            OFFSET 0
        ) AS n
        OFFSET 0  -- each number is made once, however many figures take it
    ) AS x
) AS c
CROSS JOIN LATERAL (
    SELECT CASE l.task ->> 'ranking_by' WHEN 'mean' THEN c.mean WHEN 'geom' THEN c.geom ELSE c.last END AS expected
) AS e
WHERE p.score_raw IS NOT NULL AND p.kind = 'benchmark';
COMMENT ON VIEW runner.run_figures
    IS 'What the cases of a public run with a score say: speed of light, expected score in seconds.';
