-- Hosts by the hash of their names, and the first public run of each: an export numbers them in this order.
CREATE OR REPLACE VIEW runner.dataset_hosts AS
SELECT h.leaderboard_id, encode(sha256(convert_to(h.name, 'UTF8')), 'hex') AS host_sha256,
       (h.first >> 32)::integer AS first_submission_id, (h.first & 4294967295)::integer AS first_run_id
FROM (
    SELECT s.leaderboard_id, a.name, min(a.submission_id::bigint << 32 | a.run_id) AS first
    FROM (
        SELECT r.submission_id, r.id AS run_id, r.system_info ->> 'hostname' AS name
        FROM leaderboard.runs r
        WHERE NOT r.secret
        UNION ALL
        SELECT p.submission_id, p.run_id, p.run #>> '{system_info,hostname}'
        FROM runner.superseded_run p
        JOIN runner.job j ON j.id = p.job_id
        WHERE j.retired_as = 'invalidated' AND NOT (p.run ->> 'secret')::boolean
    ) AS a
    JOIN leaderboard.submission s ON s.id = a.submission_id
    WHERE a.name IS NOT NULL
    GROUP BY s.leaderboard_id, a.name
) AS h;
COMMENT ON VIEW runner.dataset_hosts IS 'A row per leaderboard and host, with the first public run there; no names.';
