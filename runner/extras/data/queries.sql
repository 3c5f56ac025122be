-- What data exports and their checks send.

-- name: moment
-- The time of a snapshot, and the server that it is of.
SELECT (extract(epoch FROM now()) * 1000000)::bigint AS at_us, current_setting('server_version') AS server,
       pg_is_in_recovery() AS replica

-- name: boards
-- The leaderboards that a data export may be of; open: the deadline has not passed.
SELECT d.id, d.name, d.deadline > now() AS open, d.visibility, d.lang, d.ranking_by, d.description, d.gpu_types,
       d.demanded_timing, d.code_open,
       (extract(epoch FROM least(greatest(d.deadline, '0001-01-02Z'), '9999-12-30Z')) * 1000000)::bigint AS deadline_us
FROM runner.dataset_leaderboards d
ORDER BY d.id

-- name: people
-- Users and submissions per leaderboard, and how many of them each reason leaves out of a data export. Pairs: different
-- users and codes of the submissions that no list leaves out.
SELECT e.leaderboard_id, sum(e.held)::bigint AS submissions, count(*) AS users,
       coalesce(sum(e.held) FILTER (WHERE e.user_id = ANY (%(users)s::text[])), 0)::bigint AS by_user,
       sum(e.excluded)::bigint AS by_submission,
       count(*) FILTER (WHERE e.user_id ~ '[^\s@]+@[^\s@]+\.[^\s@]+') AS addresses,
       sum(e.pairs)::bigint AS pairs
FROM (
    SELECT p.leaderboard_id, p.user_id, count(*) AS held,
           count(*) FILTER (WHERE p.submission_id = ANY (%(submissions)s::integer[])) AS excluded,
           count(DISTINCT p.code_id) FILTER (WHERE p.user_id <> ALL (%(users)s::text[])
                                               AND p.submission_id <> ALL (%(submissions)s::integer[])) AS pairs
    FROM runner.dataset_people p
    WHERE p.leaderboard_id = ANY (%(boards)s::integer[])
    GROUP BY p.leaderboard_id, p.user_id
) AS e
GROUP BY e.leaderboard_id
ORDER BY e.leaderboard_id

-- name: unknown
-- What a list of exclusions names and is not there.
SELECT 'user ' || u.id AS name FROM unnest(%(users)s::text[]) AS u (id)
WHERE NOT EXISTS (SELECT FROM runner.dataset_users d WHERE d.user_id = u.id)
UNION ALL
SELECT 'submission ' || s.id FROM unnest(%(submissions)s::integer[]) AS s (id)
WHERE NOT EXISTS (SELECT FROM runner.dataset_people p WHERE p.submission_id = s.id)
ORDER BY name

-- name: submissions
-- The rows of a data export without what their code says; times in microseconds since 1970, UTC.
SELECT e.submission_id, e.leaderboard_id, e.problem_name, e.user_id, e.user_name, e.code_id, e.file_name,
       (extract(epoch FROM least(greatest(e.submission_time, '0001-01-02Z'), '9999-12-30Z')) * 1000000)::bigint
           AS submission_time,
       e.status, e.score, e.passed, e.mode, e.runner, e.mode_category, e.verdict, e.run_id, e.score_raw,
       e.score_invalid_reason, e.flags, e.code_sha256, e.code_bytes, e.assurance_correctness, e.assurance_timing, e.sol
FROM (
    SELECT DISTINCT ON (a.leaderboard_id, a.user_id, a.code_id, a.runner) a.*
    FROM runner.entry a
    WHERE a.leaderboard_id = ANY (%(boards)s::integer[]) AND a.user_id <> ALL (%(users)s::text[])
      AND a.submission_id <> ALL (%(submissions)s::integer[])
    ORDER BY a.leaderboard_id, a.user_id, a.code_id, a.runner, a.score, a.submission_time, a.submission_id, a.run_id
) AS e
ORDER BY e.problem_name COLLATE "C", e.score, submission_time, e.submission_id, e.runner COLLATE "C"

-- name: runs
-- The public runs of a data export, a row per case.
SELECT d.run_id, d.submission_id, d.leaderboard_id, d.problem_name, d.runner, d.mode, d.passed, d.score, d.score_raw,
       d.score_invalid_reason, d.case_index, d.spec, d.mean_ns, d.std_ns, d.best_ns, d.runs, d.sol, d.duration_s, d.gpu,
       d.torch, d.runtime, d.host_sha256 AS host,
       (extract(epoch FROM least(greatest(d.start_time, '0001-01-02Z'), '9999-12-30Z')) * 1000000)::bigint
           AS start_time,
       (extract(epoch FROM least(greatest(d.end_time, '0001-01-02Z'), '9999-12-30Z')) * 1000000)::bigint AS end_time
FROM runner.dataset_runs d
WHERE d.leaderboard_id = ANY (%(boards)s::integer[]) AND d.user_id <> ALL (%(users)s::text[])
  AND d.submission_id <> ALL (%(submissions)s::integer[])
ORDER BY d.submission_id, d.run_id, d.case_index

-- name: finals
-- The order of the last finals, as a data export has it.
SELECT l.id AS leaderboard_id, f.leaderboard AS problem_name, f.gpu_type AS runner, f.rank, f.submission_id, f.user_id,
       coalesce(u.user_name, '') AS user_name, f.score, f.score_low, f.score_high, f.evaluations, f.hosts,
       f.spread_hosts,
       f.spread_rounds, f.fault, f.rank_before, (extract(epoch FROM f.ended_at) * 1000000)::bigint AS ended_at
FROM runner.final_ranking f
JOIN leaderboard.leaderboard l ON l.name = f.leaderboard
LEFT JOIN runner.dataset_users u ON u.user_id = f.user_id
WHERE l.id = ANY (%(boards)s::integer[]) AND f.user_id <> ALL (%(users)s::text[])
  AND f.submission_id <> ALL (%(submissions)s::integer[])
ORDER BY l.id, f.gpu_type, f.rank NULLS LAST, f.score, f.rank_before

-- name: codes
-- The codes that a data export needs, one per hash, by the order in which they came.
SELECT min(d.code_id) AS code_id, d.code_sha256, d.code_bytes, min(d.submission_id) AS submission_id
FROM runner.dataset_codes d
WHERE d.leaderboard_id = ANY (%(boards)s::integer[]) AND d.user_id <> ALL (%(users)s::text[])
  AND d.submission_id <> ALL (%(submissions)s::integer[])
GROUP BY d.code_sha256, d.code_bytes
ORDER BY min(d.code_id)

-- name: code
-- Submitted code as bytes.
SELECT c.id, coalesce(convert_to(c.old_code, 'UTF8'), c.code) FROM leaderboard.code_files c
WHERE c.id = ANY (%(ids)s::integer[])
ORDER BY c.id

-- name: findings
-- What the checks of the database find.
SELECT q."check", q.severity, q.problem_name, q.submission_id, q.run_id, q.runner, q.user_id, q.reason
FROM runner.dataset_quality q
WHERE q.leaderboard_id = ANY (%(boards)s::integer[])
ORDER BY q.severity, q."check" COLLATE "C", q.submission_id, q.run_id

-- name: keys
-- The key and the code of each row that a data export of these leaderboards has.
SELECT d.submission_id, d.runner, d.problem_name, d.user_id, d.code_id, d.code_sha256
FROM runner.dataset_submissions d
WHERE d.leaderboard_id = ANY (%(boards)s::integer[])
ORDER BY d.submission_id, d.runner COLLATE "C"

-- name: receipts
-- The receipts of a data export.
SELECT d.job_id, d.submission_id, d.gpu_type, d.run, d.retired_as, d.statement, d.key, d.signature
FROM runner.signed_result d
WHERE d.leaderboard_id = ANY (%(boards)s::integer[]) AND d.user_id <> ALL (%(users)s::text[])
  AND d.submission_id <> ALL (%(submissions)s::integer[])
ORDER BY d.job_id
