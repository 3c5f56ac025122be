-- A receipt goes with its job, when the submission is deleted. One of a job that was retired stays.
CREATE TABLE runner.receipt (
    job_id bigint PRIMARY KEY REFERENCES runner.job (id) ON DELETE CASCADE,
    statement text NOT NULL,
    key text NOT NULL,
    signature text NOT NULL
);
COMMENT ON TABLE runner.receipt IS 'What a host signed of an accepted ranked job, in the exact bytes.';
