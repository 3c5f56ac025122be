-- What the events of webhooks were last derived from: hosts.
CREATE TABLE runner.webhook_host (
    name text PRIMARY KEY
);
COMMENT ON TABLE runner.webhook_host IS 'Hosts that were silent when runner.derive_webhooks last saw them.';
