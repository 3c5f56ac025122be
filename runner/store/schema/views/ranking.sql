-- The best valid score of each user on each leaderboard and GPU type; equal scores share a rank.
--
-- runner.score has each user's scores in order, so the best that counts is found after a few rows. Scores of other
-- programs after runner.score_mark are looked for one by one. A score counts by the rule of runner.counting_score; a
-- banned user, of whose scores none counts, is passed over at once. Aggregates and subqueries with OFFSET: the planner
-- could make joins of anything else, and read all results for each leaderboard.
CREATE OR REPLACE VIEW runner.ranking AS
SELECT l.name AS leaderboard, best.gpu_type,
       rank() OVER (PARTITION BY l.name, best.gpu_type ORDER BY best.score) AS rank,
       best.user_id, u.user_name, best.submission_id, best.file_name, best.score, best.submission_time,
       best.timing, best.correctness, best.submission_time > l.deadline AS late
FROM leaderboard.leaderboard l
CROSS JOIN LATERAL (
    SELECT DISTINCT ON (c.gpu_type, c.user_id) c.*
    FROM (
        (WITH RECURSIVE author AS (
            (SELECT k.gpu_type, k.user_id FROM runner.score k WHERE k.leaderboard_id = l.id
             ORDER BY k.gpu_type, k.user_id LIMIT 1)
            UNION ALL
            SELECT n.gpu_type, n.user_id
            FROM author a
            CROSS JOIN LATERAL (
                SELECT k.gpu_type, k.user_id FROM runner.score k
                WHERE k.leaderboard_id = l.id AND (k.gpu_type, k.user_id) > (a.gpu_type, a.user_id)
                ORDER BY k.gpu_type, k.user_id LIMIT 1
            ) AS n
        )
        SELECT a.gpu_type, a.user_id, f.submission_id, f.file_name, f.score, f.submission_time, f.timing, f.correctness
        FROM author a
        CROSS JOIN LATERAL (
            SELECT k.submission_id, v.file_name, v.score, k.submission_time, v.timing, v.correctness
            FROM runner.score k
            CROSS JOIN LATERAL (
                SELECT * FROM runner.counting_score o WHERE o.run_id = k.run_id OFFSET 0
            ) AS v
            WHERE k.leaderboard_id = l.id AND k.gpu_type = a.gpu_type AND k.user_id = a.user_id
            ORDER BY k.score, k.submission_time, k.submission_id LIMIT 1
        ) AS f
        WHERE (SELECT o.is_banned FROM leaderboard.user_info o WHERE o.id = a.user_id) IS NOT TRUE)
        UNION ALL
        SELECT v.gpu_type, v.user_id, v.submission_id, v.file_name, v.score, v.submission_time, v.timing, v.correctness
        FROM (SELECT r.id FROM leaderboard.runs r
              WHERE r.id > (SELECT m.run_id FROM runner.score_mark m) AND NOT r.secret AND r.score IS NOT NULL
                  AND r.passed
                AND (SELECT count(*) FROM runner.score k WHERE k.run_id = r.id) = 0
              OFFSET 0) AS r
        CROSS JOIN LATERAL (SELECT * FROM runner.counting_score o WHERE o.run_id = r.id OFFSET 0) AS v
        WHERE v.leaderboard_id = l.id
    ) AS c
    ORDER BY c.gpu_type, c.user_id, c.score, c.submission_time, c.submission_id
) AS best
CROSS JOIN LATERAL (SELECT o.user_name FROM leaderboard.user_info o WHERE o.id = best.user_id OFFSET 0) AS u;
COMMENT ON VIEW runner.ranking
    IS 'Best valid public score per user, leaderboard and GPU type; seconds, rank 1 is fastest.';
