-- The daemons.
CREATE TABLE runner.host (
    name text PRIMARY KEY,
    version text NOT NULL,
    slots jsonb NOT NULL,
    gpu_types text[] NOT NULL DEFAULT '{}',
    instance text,
    login text,
    registered_at timestamptz NOT NULL DEFAULT now(),
    last_seen timestamptz NOT NULL DEFAULT now(),
    stopped_at timestamptz,
    draining boolean NOT NULL DEFAULT false,
    drain_reason text
);
COMMENT ON COLUMN runner.host.gpu_types IS 'Every name, aliases included, a job may use for one of its slots.';
COMMENT ON COLUMN runner.host.instance
    IS 'Identity of the daemon''s state directory; two daemons must not share a name.';
-- Functions compare it with session_user, which SET ROLE does not change.
COMMENT ON COLUMN runner.host.login IS
    'The login that may act for this host; NULL: the next that registers it. Only the owner and runner.move_host '
    'change it.';
COMMENT ON COLUMN runner.host.stopped_at IS 'Set when the daemon said goodbye.';
COMMENT ON COLUMN runner.host.draining IS 'Finishes what runs and claims nothing, until undrained; survives restarts.';
