-- Says that receipts signed with a key are not to be believed, those of evaluations from `since` on, by default all:
-- whoever has the private key can write any time into one. Returns the hosts whose key it is.
CREATE OR REPLACE FUNCTION runner.revoke_key(key text, reason text, since timestamptz DEFAULT '-infinity')
RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE runner.host_key k
    -- Finite: most drivers read no other times.
    SET revoked_from = least(greatest(coalesce(revoke_key.since, '-infinity'), '0001-01-02Z'), '9999-12-30Z'),
        revoked_reason = revoke_key.reason
    WHERE k.key = revoke_key.key RETURNING k.host
$$;
