-- The finalists whose submissions still rank, and the controls.
CREATE OR REPLACE VIEW runner.final_entry AS
SELECT f.final_id, f.number, f.submission_id, f.fault, w.leaderboard_id, w.gpu_type
FROM runner.finalist f
JOIN runner.final_sweep w ON w.id = f.final_id
WHERE EXISTS (
    SELECT FROM leaderboard.runs r
    CROSS JOIN LATERAL (SELECT o.run_id FROM runner.counting_score o WHERE o.run_id = r.id OFFSET 0) AS c
    WHERE r.submission_id = f.submission_id AND r.runner = w.gpu_type);
COMMENT ON VIEW runner.final_entry IS 'Finalists whose submissions still count in runner.ranking.';
