-- Receipts and finals are for every frontend, the hashes of codes for data exports.
GRANT SELECT ON runner.signed_result, runner.final_progress TO runner_frontend, runner_readonly;
GRANT SELECT ON runner.dataset_codes TO runner_readonly;
GRANT EXECUTE ON FUNCTION runner.final, runner.cancel_final TO runner_operator;
