-- A slot takes every job or none.
DROP FUNCTION runner.claim(text, text[], integer[], double precision, text, text[]);
DROP FUNCTION runner.is_busy(text, integer, boolean);
DROP INDEX IF EXISTS runner.job_ready_unranked_idx;
