-- Options of profile jobs. Five functions get another signature or another result.
ALTER TABLE runner.job ADD COLUMN options jsonb
    CONSTRAINT job_options_of_profile CHECK (options IS NULL OR mode = 'profile');
COMMENT ON COLUMN runner.job.options IS 'What a profile captures (runner.check_options); NULL: the defaults.';
DROP FUNCTION runner.submit(
    text, text, text, bytea, text, text[], text, integer, text, timestamptz, timestamptz, boolean);
DROP FUNCTION runner.enqueue(bigint, text, text[], integer);
DROP FUNCTION runner.add_jobs(integer, text, text[], integer);
DROP FUNCTION runner.equal_submission(integer, text, text, text, text[]);
DROP FUNCTION runner.claim(text, text[], integer[], double precision, integer, text, text[]);
