-- Counts claims.
CREATE SEQUENCE runner.claim_number;
COMMENT ON SEQUENCE runner.claim_number IS 'Counts claims: some of them move the marks.';
