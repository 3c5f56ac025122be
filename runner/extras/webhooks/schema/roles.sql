-- A sender of webhooks calls functions and reads nothing else.
GRANT USAGE ON SCHEMA runner TO runner_webhook;
GRANT SELECT ON runner.migration TO runner_webhook;
GRANT EXECUTE ON FUNCTION runner.set_webhooks, runner.derive_webhooks, runner.claim_webhook, runner.note_webhook TO
    runner_webhook;

-- An operator registers targets.
GRANT EXECUTE ON FUNCTION runner.add_webhook, runner.remove_webhook, runner.test_webhook TO runner_operator;
-- It holds addresses that are secrets; runner.webhook_state has the rest.
REVOKE SELECT ON runner.webhook FROM runner_operator;
