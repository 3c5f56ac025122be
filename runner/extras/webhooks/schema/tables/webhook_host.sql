-- What the events of webhooks were last derived from: hosts.
CREATE TABLE runner.webhook_host (
    name text PRIMARY KEY,
    noted_at timestamptz NOT NULL DEFAULT now(),
    told boolean NOT NULL
);
COMMENT ON TABLE runner.webhook_host IS 'Hosts that were silent when runner.derive_webhooks last saw them.';
COMMENT ON COLUMN runner.webhook_host.told IS 'Whether its loss was told, or is older than all events.';
