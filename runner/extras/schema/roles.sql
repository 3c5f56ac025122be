-- Any frontend reads receipts and finals, and how far finals and validations are; data exports the hashes of codes.
GRANT SELECT ON runner.signed_result, runner.final_progress, runner.final_ranking TO runner_frontend, runner_readonly;
GRANT SELECT ON runner.dataset_codes TO runner_readonly;
GRANT EXECUTE ON FUNCTION runner.validation_progress TO runner_frontend;
GRANT EXECUTE ON FUNCTION runner.final, runner.cancel_final, runner.validate, runner.cancel_validations
    TO runner_operator;
