-- Any frontend may submit batches; an operator says how many items an owner may have open.
GRANT EXECUTE ON FUNCTION runner.submit_batch, runner.batch_results, runner.batch_progress, runner.cancel_batch
    TO runner_frontend;
GRANT EXECUTE ON FUNCTION runner.set_open_items TO runner_operator;
