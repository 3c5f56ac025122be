-- GPU types, in lower case and with all their names, of which no job is claimed.
CREATE TABLE runner.pause (
    gpu_type text PRIMARY KEY,
    reason text NOT NULL,
    since timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE runner.pause IS 'GPU types, in lower case and with all their names, of which no job is claimed.';
