-- The same idempotency key gives the same submission again; equal files are submissions of their own.
DROP FUNCTION runner.submit(
    text, text, text, bytea, text, text[], text, integer, text, timestamptz, timestamptz, boolean, jsonb);
DROP FUNCTION runner.equal_submission(integer, text, text, text, text[], jsonb);
