-- What the Discord frontend sends, beside what guests share.

-- name: own_places
-- A user's places in the rankings of a leaderboard, and how many users each has.
SELECT p.gpu_type, p.rank::integer, p.score, p.timing, p.submission_id, p.entries
FROM (SELECT r.*, count(*) OVER (PARTITION BY r.gpu_type)::integer AS entries
      FROM runner.ranking r WHERE r.leaderboard = %(leaderboard)s::text) AS p
WHERE p.user_id = %(user_id)s::text AND p.gpu_type = ANY (%(gpu_types)s::text[])

-- name: own_submissions
-- A user's newest submissions to a leaderboard that ask for any of these GPU types; of the last hundred.
SELECT v.submission_id, v.submission_time, v.file_name, v.modes, v.gpu_types, v.state, v.verdict, v.score
FROM runner.status v
WHERE v.submission_id = ANY (ARRAY(
    SELECT s.id FROM leaderboard.submission s
    WHERE s.user_id = %(user_id)s::text AND s.leaderboard_id = %(board_id)s::integer ORDER BY s.id DESC LIMIT 100))
  AND v.gpu_types && %(gpu_types)s::text[]
ORDER BY v.submission_id DESC LIMIT %(limit)s::integer

-- name: task_files
-- The files of a leaderboard's task.
SELECT CASE jsonb_typeof(l.task -> 'files') WHEN 'object' THEN l.task -> 'files' ELSE '{}' END AS files
FROM leaderboard.leaderboard l WHERE l.id = %(board_id)s::integer

-- name: announced_gpu_types
-- The GPU types that hosts have announced, those of live hosts first.
SELECT g.name FROM runner.gpu_type g
ORDER BY NOT EXISTS (
    SELECT FROM runner.host h
    WHERE g.name = ANY (h.gpu_types) AND h.stopped_at IS NULL AND h.last_seen > now() - interval '60 seconds'), g.name

-- name: count_submissions
-- How many submissions a leaderboard has.
SELECT count(*)::integer AS submissions FROM leaderboard.submission s WHERE s.leaderboard_id = %(board_id)s::integer

-- name: submit_by_discord
-- Stores a submission and its jobs, and where it is to be shown. The key makes a repetition harmless.
WITH stored AS MATERIALIZED (
    SELECT runner.submit(
        leaderboard => %(leaderboard)s::text, user_id => %(user_id)s::text, file_name => %(file_name)s::text,
        code => %(code)s::bytea, mode => %(mode)s::text, gpu_types => %(gpu_types)s::text[],
        -- Names that people choose may have characters that the queue refuses.
        user_name => CASE WHEN runner.is_odd(coalesce(%(display_name)s::text, E'\n')) THEN %(user_name)s::text
                          ELSE %(display_name)s::text END,
        idempotency_key => 'discord-' || %(interaction_id)s::bigint) AS id
), shown AS (
    INSERT INTO runner.discord_submission (submission_id, interaction_id, channel_id)
    SELECT s.id, %(interaction_id)s::bigint, %(channel_id)s::bigint FROM stored s ON CONFLICT DO NOTHING
)
SELECT s.id AS submission_id FROM stored s

-- name: public_verdicts
-- The verdict of a submission on each GPU type, if its leaderboard is public: that of its secret run where the public
-- one passed.
SELECT DISTINCT ON (1) o.job ->> 'gpu_type' AS gpu_type, o.job ->> 'verdict' AS verdict
FROM runner.status v
JOIN leaderboard.leaderboard l ON l.name = v.leaderboard AND l.visibility = 'public'
CROSS JOIN LATERAL jsonb_array_elements(v.jobs) AS o (job)
WHERE v.submission_id = %(submission_id)s::integer
  AND o.job ->> 'verdict' IS NOT NULL AND o.job ->> 'retired' IS NULL
ORDER BY 1, o.job ->> 'verdict' = 'accepted', o.job ->> 'secret'

-- name: discord_open
-- Submissions that are to be followed, with how far they are: those that are over first, then the oldest.
SELECT d.submission_id, d.interaction_id, d.channel_id, d.thread_id, d.message_id, d.verdict_id,
       v.leaderboard, v.user_id, v.state, v.phase, v.position, v.no_host_since, v.paused, v.done
FROM (SELECT o.* FROM runner.discord_submission o JOIN leaderboard.submission s ON s.id = o.submission_id
      WHERE o.ended_at IS NULL ORDER BY coalesce(s.done, false) DESC, o.submission_id LIMIT 1000) AS d
CROSS JOIN LATERAL (SELECT * FROM runner.status t WHERE t.submission_id = d.submission_id OFFSET 0) AS v
ORDER BY d.submission_id

-- name: discord_thread
-- Notes the private thread of a submission.
UPDATE runner.discord_submission SET thread_id = %(thread_id)s::bigint WHERE submission_id = %(submission_id)s::integer

-- name: discord_message
-- Notes the message in a submission's thread.
UPDATE runner.discord_submission SET message_id = %(message_id)s::bigint
WHERE submission_id = %(submission_id)s::integer

-- name: discord_verdict
-- Notes the public verdict of a submission.
UPDATE runner.discord_submission SET verdict_id = %(verdict_id)s::bigint
WHERE submission_id = %(submission_id)s::integer

-- name: discord_ended
-- Notes that everything about a submission is said.
UPDATE runner.discord_submission SET ended_at = now() WHERE submission_id = %(submission_id)s::integer
