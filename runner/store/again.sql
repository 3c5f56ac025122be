-- name: matching
-- What a selection matches, counted by kind.
SELECT m.leaderboard, m.gpu_type, m.mode, m.obstacle, count(*)::integer AS evaluations,
       sum(cardinality(m.twins))::integer AS jobs, sum(cardinality(m.counting))::integer AS counting
FROM runner.matching(
    submission_id => %(submission_id)s::bigint, leaderboard => %(leaderboard)s::text, host => %(host)s::text,
    since => %(since)s::timestamptz, until => %(until)s::timestamptz, gpu_types => %(gpu_types)s::text[]
) m
GROUP BY m.leaderboard, m.gpu_type, m.mode, m.obstacle
ORDER BY m.leaderboard, m.gpu_type, m.mode, m.obstacle NULLS FIRST

-- name: rerun
-- Evaluates again what matches.
SELECT runner.rerun(
    submission_id => %(submission_id)s::bigint, leaderboard => %(leaderboard)s::text, host => %(host)s::text,
    since => %(since)s::timestamptz, until => %(until)s::timestamptz, gpu_types => %(gpu_types)s::text[],
    reason => %(reason)s::text, priority => %(priority)s::integer
) AS jobs

-- name: invalidate
-- Takes what matches out of the ranking.
SELECT runner.invalidate(
    submission_id => %(submission_id)s::bigint, leaderboard => %(leaderboard)s::text, host => %(host)s::text,
    since => %(since)s::timestamptz, until => %(until)s::timestamptz, gpu_types => %(gpu_types)s::text[],
    reason => %(reason)s::text
) AS jobs

-- name: drain
-- A host finishes what runs and claims nothing.
SELECT runner.drain(host => %(host)s::text, reason => %(reason)s::text) AS changed

-- name: undrain
-- A host claims again.
SELECT runner.undrain(host => %(host)s::text) AS changed

-- name: reap
-- Forgets one batch of what is old.
SELECT artifacts, stale_results, events, hosts, shares
FROM runner.reap(keep => %(keep_s)s * interval '1 second', at_most => %(limit)s::integer)

-- name: events
-- What happened to a submission out of the ordinary, oldest first.
SELECT id, at, kind, job_id, attempt, host, detail FROM runner.event WHERE submission_id = %(submission_id)s ORDER BY id

-- name: moment
-- A point in time that is said as a span, such as `2 hours ago`.
SELECT now() + %(span)s::text::interval AS moment
