ALTER TABLE runner.job ADD COLUMN after_public boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN runner.job.after_public IS
    'A secret job whose public job is not over: not ready. Where that is accepted it becomes ready, else it ends with it.';
