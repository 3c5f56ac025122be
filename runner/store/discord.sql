-- What the Discord frontend sends beside gateway.sql; the same form as queries.sql.

-- name: before_submit
-- The leaderboard of a submission that is to come, its GPU types, and those that the file names.
SELECT name, offered, named FROM runner.before_submit(%(leaderboard)s::text, %(user_id)s::text, %(code)s::bytea)

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

-- name: discord_open
-- Submissions that are to be followed, with how far they are; the oldest first.
SELECT d.submission_id, d.interaction_id, d.channel_id, d.thread_id, d.message_id, d.verdict_id,
       v.leaderboard, v.user_id, v.state, v.phase, v.position, v.no_host_since, v.paused, v.done
FROM runner.discord_submission d
CROSS JOIN LATERAL (SELECT * FROM runner.status t WHERE t.submission_id = d.submission_id OFFSET 0) AS v
WHERE d.ended_at IS NULL ORDER BY d.submission_id LIMIT 1000

-- name: discord_thread
-- Notes the private thread of a submission.
UPDATE runner.discord_submission SET thread_id = %(thread_id)s::bigint WHERE submission_id = %(submission_id)s::integer

-- name: discord_message
-- Notes the message in a submission's thread.
UPDATE runner.discord_submission SET message_id = %(message_id)s::bigint WHERE submission_id = %(submission_id)s::integer

-- name: discord_verdict
-- Notes the public verdict of a submission.
UPDATE runner.discord_submission SET verdict_id = %(verdict_id)s::bigint WHERE submission_id = %(submission_id)s::integer

-- name: discord_ended
-- Notes that everything about a submission is said.
UPDATE runner.discord_submission SET ended_at = now() WHERE submission_id = %(submission_id)s::integer
