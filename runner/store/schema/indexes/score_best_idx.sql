-- The scores of a leaderboard and GPU type, the best first: for leaders and records. The condition, which every row
-- meets, keeps runner.ranking off it: a user's own scores are in another index.
CREATE INDEX CONCURRENTLY score_best_idx ON runner.score
    (leaderboard_id, gpu_type, score, submission_time, submission_id) WHERE run_id > 0;
