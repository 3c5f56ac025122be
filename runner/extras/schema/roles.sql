-- Receipts are for every frontend, the hashes of codes for data exports.
GRANT SELECT ON runner.signed_result TO runner_frontend, runner_readonly;
GRANT SELECT ON runner.dataset_codes TO runner_readonly;
