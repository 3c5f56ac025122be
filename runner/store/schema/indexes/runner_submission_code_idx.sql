-- Whether a submission has a file: before the file is removed, and for the foreign key then.
CREATE INDEX CONCURRENTLY runner_submission_code_idx ON leaderboard.submission (code_id);
