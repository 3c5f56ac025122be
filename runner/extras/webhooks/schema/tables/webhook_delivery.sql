-- Which events wait for which target. A row goes when its target has answered.
CREATE TABLE runner.webhook_delivery (
    webhook_id bigint REFERENCES runner.webhook (id) ON DELETE CASCADE,
    event_id bigint REFERENCES runner.webhook_event (id) ON DELETE CASCADE,
    PRIMARY KEY (webhook_id, event_id)
);
CREATE INDEX webhook_delivery_event_idx ON runner.webhook_delivery (event_id);
COMMENT ON TABLE runner.webhook_delivery IS 'Which events wait for which target of webhooks.';
