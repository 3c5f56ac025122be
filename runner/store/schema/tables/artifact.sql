-- Files of results, such as profiles.
CREATE TABLE runner.artifact (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL REFERENCES runner.job (id) ON DELETE CASCADE,
    name text NOT NULL,
    media_type text NOT NULL,
    data bytea NOT NULL CHECK (octet_length(data) <= 67108864),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL DEFAULT now() + interval '30 days',
    UNIQUE (job_id, name)
);
CREATE INDEX artifact_expiry_idx ON runner.artifact (expires_at);
