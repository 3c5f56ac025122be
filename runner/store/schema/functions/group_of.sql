-- What a daemon gets of a group: the reference, the settings and the candidates that have no result yet. Part of
-- runner.claim: it is planned with the settings of runner.claim.
CREATE OR REPLACE FUNCTION runner.group_of(job_id bigint) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_group record;
BEGIN
    SELECT g.entry_point, g.settings, s.text, j.batch_id INTO v_group
    FROM (SELECT * FROM runner.job_group o WHERE o.job_id = group_of.job_id OFFSET 0) AS g
    CROSS JOIN LATERAL (SELECT * FROM runner.source o WHERE o.hash = g.reference OFFSET 0) AS s
    CROSS JOIN LATERAL (SELECT * FROM runner.job o WHERE o.id = g.job_id OFFSET 0) AS j;
    RETURN jsonb_build_object(
        'kind', 'module', 'batch_id', v_group.batch_id, 'reference', v_group.text, 'entry_point', v_group.entry_point,
        'settings', v_group.settings, 'candidates', (
            SELECT coalesce(jsonb_agg(jsonb_build_object('id', i.id, 'entry_point', i.entry_point, 'code', s.text)
                                      ORDER BY i.id), '[]')
            FROM (SELECT * FROM runner.item o WHERE o.job_id = group_of.job_id OFFSET 0) AS i
            CROSS JOIN LATERAL (SELECT * FROM runner.source o WHERE o.hash = i.candidate OFFSET 0) AS s
            WHERE (SELECT r.item_id FROM runner.item_result r WHERE r.item_id = i.id) IS NULL));
END
$$;
