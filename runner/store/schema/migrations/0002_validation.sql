-- Jobs that validate a submission by its task's own script.
ALTER TABLE runner.job
    ADD COLUMN sweep_id bigint,
    ADD COLUMN validates integer REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    DROP CONSTRAINT job_mode_check,
    ADD CONSTRAINT job_mode_check
        CHECK (mode IN ('test', 'benchmark', 'profile', 'leaderboard', 'private', 'validation')),
    DROP CONSTRAINT job_of_one_kind,
    ADD CONSTRAINT job_of_one_kind CHECK (num_nonnulls(submission_id, batch_id, validates) = 1),
    ADD CONSTRAINT job_validates_in_a_sweep CHECK ((validates IS NULL) = (sweep_id IS NULL));
COMMENT ON TABLE runner.job IS
    'The queue: evaluate or validate submission S on GPU type T in mode M (public or secret), or a group of items of a batch.';
COMMENT ON COLUMN runner.job.state IS
    'Written by claim, complete, leave, follow_public, cancel, cancel_batch and cancel_validations alone; new jobs are queued.';
COMMENT ON COLUMN runner.job.sweep_id IS
    'The row of leaderboard.validation_sweep; no foreign key, since a database of an older KernelBot has no such table.';
COMMENT ON COLUMN runner.job.validates IS
    'The submission that the job validates; it is no job of the submission, so it changes nothing there.';
-- KernelBot's manual sweeps have no date. Where KernelBot made the table, nothing is to be done.
DO $migration$
BEGIN
    IF EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = to_regclass('leaderboard.validation_sweep')
                 AND a.attname = 'scheduled_for' AND a.attnotnull) THEN
        ALTER TABLE leaderboard.validation_sweep ALTER COLUMN scheduled_for DROP NOT NULL;
    END IF;
END
$migration$;
