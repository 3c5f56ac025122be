-- The GPU types that the registries of daemons and operators know.
CREATE TABLE runner.gpu_type (
    name text PRIMARY KEY,
    vendor text NOT NULL,
    aliases text[] NOT NULL DEFAULT '{}',
    description text NOT NULL DEFAULT '',
    synced_at timestamptz NOT NULL DEFAULT now(),
    login text
);
COMMENT ON COLUMN runner.gpu_type.login IS 'The daemon''s login that published it; NULL: the database''s owner did.';
