-- No program passes trace contexts on, and `migrate` writes nothing into runner.retry.
DROP FUNCTION runner.trace(bigint, text);
DROP TABLE runner.trace;
COMMENT ON TABLE runner.retry IS 'How often a job is tried again; the schema''s owner changes it by UPDATE.';
