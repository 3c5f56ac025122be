-- Where a publication has all tables, as of logical replication, rows of one without a key are neither changed nor
-- removed.
ALTER TABLE runner.applied ADD COLUMN only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row);
ALTER TABLE runner.score_mark ADD COLUMN only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row);
-- Each is part of its only caller now.
DROP FUNCTION runner.is_shared();
DROP FUNCTION runner.open_jobs(integer, text);
