-- Hosts refuse files that are no Python before a slot is free.
ALTER TABLE runner.job ADD COLUMN checked boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN runner.job.checked IS 'Whether a host has had its file to see whether it is Python (runner.take_check).';
COMMENT ON COLUMN runner.job.state IS
    'Written by claim, complete, complete_waiting, leave, follow_public, cancel, cancel_batch and cancel_sweep alone; '
    'new jobs are queued.';
