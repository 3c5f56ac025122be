-- The leaderboards of a data export. No seed and no text of a task.
CREATE OR REPLACE VIEW runner.dataset_leaderboards AS
SELECT l.id, l.name, l.deadline, l.task ->> 'lang' AS lang, coalesce(l.task ->> 'ranking_by', 'last') AS ranking_by,
       l.description, ARRAY(SELECT g.gpu_type FROM leaderboard.gpu_type g WHERE g.leaderboard_id = l.id
                            ORDER BY g.gpu_type COLLATE "C") AS gpu_types,
       l.visibility, d.timing AS demanded_timing,
       EXISTS (SELECT FROM runner.open_board o WHERE o.leaderboard_id = l.id) AS code_open
FROM leaderboard.leaderboard l
JOIN runner.demand d ON d.leaderboard = l.name;
COMMENT ON VIEW runner.dataset_leaderboards IS 'Leaderboards without seeds and task files.';
