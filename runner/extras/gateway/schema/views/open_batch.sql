-- The batches that wait for results; a cancelled one is left out.
CREATE OR REPLACE VIEW runner.open_batch AS
SELECT b.id, coalesce(b.name, b.id::text) AS batch, o.user_id, n.items, n.finished, b.created_at
FROM runner.batch b
JOIN runner.batch_owner o ON o.id = b.owner_id
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT i.number FROM runner.item i WHERE i.batch_id = b.id ORDER BY i.number DESC LIMIT 1),
        0) AS items,
           coalesce((SELECT r.seq FROM runner.item_result r WHERE r.batch_id = b.id ORDER BY r.seq DESC LIMIT 1), 0)
               AS finished
) AS n
WHERE NOT b.idle AND NOT b.removing AND b.cancelled_at IS NULL AND n.finished < n.items;
COMMENT ON VIEW runner.open_batch IS 'The batches that wait for results, with how many they have.';
