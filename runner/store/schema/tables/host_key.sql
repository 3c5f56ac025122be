-- Stays when the row of runner.host goes. Only register and revoke_key write it.
CREATE TABLE runner.host_key (
    host text NOT NULL,
    key text NOT NULL CHECK (key ~ '^[0-9a-f]{64}$'),
    registered_at timestamptz NOT NULL DEFAULT now(),
    replaced_at timestamptz,
    revoked_from timestamptz,
    revoked_reason text,
    PRIMARY KEY (host, key)
);
COMMENT ON TABLE runner.host_key IS 'Public keys of hosts (Ed25519): what their receipts are checked with.';
COMMENT ON COLUMN runner.host_key.replaced_at IS 'When the host registered another key.';
COMMENT ON COLUMN runner.host_key.revoked_from IS 'Receipts of evaluations from then on are not to be believed.';
