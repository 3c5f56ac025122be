-- A group is a job with up to 16 items of one reference and equal settings.
CREATE TABLE runner.job_group (
    job_id bigint PRIMARY KEY REFERENCES runner.job (id) ON DELETE CASCADE,
    reference bytea NOT NULL,
    entry_point text NOT NULL,
    settings jsonb NOT NULL
);
COMMENT ON TABLE runner.job_group IS 'What all items of a group have in common.';
