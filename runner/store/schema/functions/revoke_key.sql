-- Says that receipts of a host's key are not to be believed, those of evaluations from `since` on, by default all: whoever
-- has the private key can write any time into a receipt. Can be called again with another time.
CREATE OR REPLACE FUNCTION runner.revoke_key(host text, key text, reason text, since timestamptz DEFAULT '-infinity')
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(btrim(revoke_key.reason), '') = '' THEN
        PERFORM runner.refuse('KR021', 'no reason given', 'Say why; whoever checks a receipt reads it.');
    END IF;
    UPDATE runner.host_key k
    SET revoked_from = coalesce(revoke_key.since, '-infinity'), revoked_reason = btrim(revoke_key.reason)
    WHERE k.host = revoke_key.host AND k.key = revoke_key.key;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR018', format('host %L has no key %L', revoke_key.host, revoke_key.key),
            'Look at runner.host_key.');
    END IF;
END
$$;
