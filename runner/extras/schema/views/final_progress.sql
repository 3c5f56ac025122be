-- How far finals are.
CREATE OR REPLACE VIEW runner.final_progress AS
SELECT w.id AS final_id, l.name AS leaderboard, w.gpu_type, w.status, w.rounds,
       (SELECT coalesce(max(j.round), 1) FROM runner.job j WHERE j.final_id = w.id) AS round,
       (SELECT count(*) FROM runner.finalist f WHERE f.final_id = w.id AND f.number > 0)::integer AS finalists,
       cardinality(w.hosts) AS hosts,
       (SELECT count(*) FROM runner.final_score s WHERE s.final_id = w.id)::integer AS evaluations,
       w.ordered_at, w.ended_at
FROM runner.final_sweep w JOIN leaderboard.leaderboard l ON l.id = w.leaderboard_id;
COMMENT ON VIEW runner.final_progress IS 'Finals: their state, their present round, and how many scores they have.';
