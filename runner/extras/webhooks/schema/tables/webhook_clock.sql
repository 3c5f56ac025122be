-- One row: who derives events holds it, so that one does at a time.
CREATE TABLE runner.webhook_clock (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    begun_at timestamptz
);
COMMENT ON TABLE runner.webhook_clock IS 'Since when events are derived for webhooks; NULL: they never were.';
INSERT INTO runner.webhook_clock DEFAULT VALUES;
