-- Results that came after their attempt was over: evidence, never a verdict.
CREATE TABLE runner.stale_result (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL REFERENCES runner.job (id) ON DELETE CASCADE,
    attempt integer NOT NULL,
    verdict text,
    result jsonb NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX stale_result_job_idx ON runner.stale_result (job_id);
CREATE INDEX stale_result_age_idx ON runner.stale_result (received_at);
COMMENT ON TABLE runner.stale_result IS 'Results that came after their attempt was over: evidence, never a verdict.';
