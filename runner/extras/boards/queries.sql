-- What the commands of leaderboards send; the same form as those of the store.

-- name: ranking
-- The places on a leaderboard.
SELECT rank, leaderboard, gpu_type, user_id, user_name, submission_id, file_name, score, submission_time, timing,
       correctness, late
FROM runner.ranking
WHERE leaderboard = %(leaderboard)s AND gpu_type = coalesce(%(gpu_type)s::text, gpu_type)
ORDER BY gpu_type, rank, submission_time, submission_id

-- name: boards
-- All leaderboards, open ones first.
SELECT l.id, l.name, l.deadline, l.visibility, d.timing, d.tolerance,
       ARRAY(SELECT g.gpu_type FROM leaderboard.gpu_type g WHERE g.leaderboard_id = l.id ORDER BY 1) AS gpus,
       (SELECT count(*) FROM leaderboard.submission s WHERE s.leaderboard_id = l.id) AS submissions
FROM leaderboard.leaderboard l JOIN runner.demand d ON d.leaderboard = l.name ORDER BY l.deadline < now(), l.name

-- name: board
-- One leaderboard with its task.
SELECT l.id, l.name, l.deadline, l.description, l.visibility, l.creator_id, l.forum_id, l.task, b.extra, d.timing,
       d.tolerance, coalesce(b.open_code, true) AS open_code,
       ARRAY(SELECT g.gpu_type FROM leaderboard.gpu_type g WHERE g.leaderboard_id = l.id ORDER BY 1) AS gpus,
       (SELECT count(*) FROM leaderboard.submission s WHERE s.leaderboard_id = l.id) AS submissions
FROM leaderboard.leaderboard l
JOIN runner.demand d ON d.leaderboard = l.name
LEFT JOIN runner.board b ON b.leaderboard_id = l.id
WHERE l.name = %(name)s

-- name: board_templates
-- A leaderboard's templates, the newest of each language.
SELECT DISTINCT ON (lang) lang, code FROM leaderboard.templates WHERE leaderboard_id = %(id)s ORDER BY lang, id DESC

-- name: lock_board
-- Holds a leaderboard until the transaction ends, also against submissions; waits for those that are being stored.
SELECT l.id FROM leaderboard.leaderboard l WHERE l.name = %(name)s FOR UPDATE

-- name: board_use
-- One leaderboard's task and use. Asked after the lock: one statement for both would count what it saw before it waited.
SELECT l.id, l.task, b.extra,
       ARRAY(SELECT g.gpu_type FROM leaderboard.gpu_type g WHERE g.leaderboard_id = l.id ORDER BY 1) AS gpus,
       (SELECT count(*) FROM leaderboard.submission s WHERE s.leaderboard_id = l.id) AS submissions
FROM leaderboard.leaderboard l LEFT JOIN runner.board b ON b.leaderboard_id = l.id
WHERE l.name = %(name)s

-- name: insert_board
-- Makes a leaderboard; returns no row if the name is taken.
INSERT INTO leaderboard.leaderboard (name, deadline, task, creator_id, forum_id, description, visibility)
VALUES (%(name)s, %(deadline)s, %(task)s, %(creator_id)s, %(forum_id)s, %(description)s, %(visibility)s)
ON CONFLICT (name) DO NOTHING RETURNING id

-- name: update_board
-- Changes a leaderboard's own columns.
UPDATE leaderboard.leaderboard SET deadline = %(deadline)s, task = %(task)s, description = %(description)s
WHERE id = %(id)s

-- name: drop_board_gpus
-- Removes the GPU types that a leaderboard no longer offers.
DELETE FROM leaderboard.gpu_type WHERE leaderboard_id = %(id)s AND NOT gpu_type = ANY (%(gpus)s::text[])

-- name: insert_board_gpus
-- Adds the GPU types that a leaderboard offers.
INSERT INTO leaderboard.gpu_type (leaderboard_id, gpu_type)
SELECT %(id)s, g FROM unnest(%(gpus)s::text[]) AS g ON CONFLICT DO NOTHING

-- name: drop_board_templates
-- Removes a leaderboard's templates, before new ones are added.
DELETE FROM leaderboard.templates WHERE leaderboard_id = %(id)s

-- name: insert_board_template
-- Adds one template to a leaderboard.
INSERT INTO leaderboard.templates (leaderboard_id, lang, code) VALUES (%(id)s, %(lang)s, %(code)s)

-- name: save_board_extra
-- Stores the part of a leaderboard that only schema runner has.
INSERT INTO runner.board (leaderboard_id, extra, harness) VALUES (%(id)s, %(extra)s, %(harness)s)
ON CONFLICT (leaderboard_id) DO UPDATE SET extra = EXCLUDED.extra, harness = EXCLUDED.harness

-- name: final_ranking
-- The last finals of a leaderboard, the fastest first; those who are out come last.
SELECT gpu_type, rank, user_id, user_name, submission_id, score AS score_s, score_low AS score_low_s,
       score_high AS score_high_s, evaluations, hosts, spread_hosts, spread_rounds, fault, rank_before, final_id,
       ended_at
FROM runner.final_ranking
WHERE leaderboard = %(leaderboard)s AND (%(gpu_type)s::text IS NULL OR gpu_type = %(gpu_type)s)
ORDER BY gpu_type, rank NULLS LAST, score, rank_before

-- name: final_pairs
-- The pairs of finals, the control's first.
SELECT final_id, first, second, control, n, wins, ratio, ratio_low, ratio_high, error, told_apart, mean_ratio
FROM runner.final_pair WHERE final_id = ANY (%(ids)s::bigint[]) ORDER BY final_id, first, second

-- name: matching
-- Counts the evaluations that a selection matches, by kind.
SELECT m.leaderboard, m.gpu_type, m.mode, m.obstacle, count(*)::integer AS evaluations,
       sum(cardinality(m.twins))::integer AS jobs, sum(cardinality(m.counting))::integer AS counting
FROM runner.matching(
    submission_id => %(submission_id)s::bigint, leaderboard => %(leaderboard)s::text, host => %(host)s::text,
    since => %(since)s::timestamptz, until => %(until)s::timestamptz, gpu_types => %(gpu_types)s::text[],
    verdicts => %(verdicts)s::text[], cause => %(cause)s::text
) m
GROUP BY m.leaderboard, m.gpu_type, m.mode, m.obstacle
ORDER BY m.leaderboard, m.gpu_type, m.mode, m.obstacle NULLS FIRST

-- name: failed
-- Attempts that gave no result, the newest first.
SELECT e.at, e.kind, s.id AS submission_id, l.name AS leaderboard, coalesce(b.name, b.id::text) AS batch,
       coalesce(s.user_id, j.user_id) AS user_id, e.job_id, e.attempt, e.host, j.gpu_type, j.mode,
       j.secret, j.state, j.verdict, e.detail ->> 'slot' AS slot,
       (SELECT max(c ->> 'error') FROM jsonb_array_elements(j.causes) AS c
           WHERE c ->> 'attempt' = e.attempt::text) AS error
FROM runner.event e
JOIN runner.job j ON j.id = e.job_id
LEFT JOIN leaderboard.submission s ON s.id = coalesce(e.submission_id, j.validates)
LEFT JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
LEFT JOIN runner.batch b ON b.id = j.batch_id
WHERE e.kind IN ('failed', 'reclaimed')
  AND e.at >= coalesce(%(since)s::timestamptz, '-infinity')
  AND (%(host)s::text IS NULL OR e.host = %(host)s) AND (%(leaderboard)s::text IS NULL OR l.name = %(leaderboard)s)
ORDER BY e.at DESC, e.id DESC LIMIT %(limit)s
