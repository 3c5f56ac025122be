-- The scores of a leaderboard and GPU type, the newest last: for progressions.
CREATE INDEX CONCURRENTLY score_time_idx ON runner.score (leaderboard_id, gpu_type, submission_time, submission_id);
