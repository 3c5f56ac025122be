-- Does what settle_all does, for one submission. True: it is finished.
CREATE OR REPLACE FUNCTION runner.settle(submission_id integer) RETURNS boolean
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT coalesce(settle.submission_id = ANY (runner.settle_all(ARRAY[settle.submission_id])), false) $$;
