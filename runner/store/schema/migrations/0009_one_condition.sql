-- A slot takes every job or none, and `migrate` writes nothing into runner.retry.
DROP FUNCTION runner.claim(text, text[], integer[], double precision, text, text[]);
DROP FUNCTION runner.is_busy(text, integer, boolean);
DROP INDEX IF EXISTS runner.job_ready_unranked_idx;
COMMENT ON TABLE runner.retry IS 'How often a job is tried again; the schema''s owner changes it by UPDATE.';
