-- They return how much they have removed, so that daemons go on until all of it is.
DROP FUNCTION runner.reap(interval, integer);
DROP FUNCTION runner.reap_batches(integer);
