-- Raises an error unless each statement of this transaction sees what is committed by then. With one snapshot for all
-- of them, a transaction waits for a lock and then decides by what was there before: a submission would never be done.
CREATE OR REPLACE FUNCTION runner.check_isolation() RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM runner.refuse('KR027', format('the transaction is %s, expected read committed',
            current_setting('transaction_isolation')), 'Begin it with ISOLATION LEVEL READ COMMITTED.');
    END IF;
END
$$;
