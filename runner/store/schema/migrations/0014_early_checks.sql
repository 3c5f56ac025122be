-- Hosts refuse files that are no Python before a slot is free.
ALTER TABLE runner.job ADD COLUMN checked boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN runner.job.checked IS 'Whether a host has had its file to see whether it is Python (runner.take_check).';
