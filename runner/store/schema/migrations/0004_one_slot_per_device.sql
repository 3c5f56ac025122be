-- A device belongs to one slot: no host keeps any free for a larger one, and a claim fills all free slots. No operator
-- takes a job from a host.
DROP FUNCTION runner.reserve(text, text[], text[], double precision, double precision);
DROP FUNCTION runner.claim(text, text[], integer[], double precision, integer, text, text[]);
DROP FUNCTION runner.evict(bigint, text);
ALTER TABLE runner.job DROP COLUMN reserved_by, DROP COLUMN reserved_until;
