-- The texts of references and candidates.
CREATE TABLE runner.source (
    hash bytea PRIMARY KEY,
    text text NOT NULL,
    used_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX source_age_idx ON runner.source (used_at);
COMMENT ON TABLE runner.source
    IS 'References and candidates, each text once, by SHA-256. used_at is at most an hour behind.';
