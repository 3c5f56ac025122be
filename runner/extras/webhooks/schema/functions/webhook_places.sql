-- The results among these that webhooks may tell, with the present names of their users: each still counts in
-- runner.ranking.
CREATE OR REPLACE FUNCTION runner.webhook_places(places jsonb, gpu_type text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF places IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT coalesce(jsonb_agg(p.item || jsonb_build_object('user', coalesce(u.user_name, u.id))
                                  ORDER BY p.number), '[]')
        FROM jsonb_array_elements(places) WITH ORDINALITY AS p (item, number)
        CROSS JOIN LATERAL (
            SELECT o.* FROM leaderboard.submission o WHERE o.id = (p.item ->> 'submission_id')::integer OFFSET 0) AS s
        JOIN leaderboard.user_info u ON u.id = s.user_id
        WHERE EXISTS (
            SELECT FROM (SELECT o.* FROM leaderboard.runs o WHERE o.submission_id = s.id OFFSET 0) AS r
            CROSS JOIN LATERAL (SELECT c.run_id FROM runner.counting_score c WHERE c.run_id = r.id OFFSET 0) AS c
            WHERE r.runner = webhook_places.gpu_type));
END
$$;
