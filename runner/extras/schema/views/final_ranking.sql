-- The order of the last final of each leaderboard and GPU type. A rank is one more than how many others are shown to be
-- faster, so those that cannot be told apart share it. Who is out, or has
-- no score, has none.
CREATE OR REPLACE VIEW runner.final_ranking AS
SELECT l.name AS leaderboard, w.gpu_type,
       CASE WHEN e.fault IS NULL AND m.n > 0 THEN 1 + cardinality(array_positions(w.slower, e.number)) END AS rank,
       s.user_id, u.user_name, e.submission_id, m.score, m.scores[m.outside + 1] AS score_low,
       m.scores[m.n - m.outside] AS score_high, m.n AS evaluations, m.hosts, m.spread_hosts, m.spread_rounds, e.fault,
       e.number AS rank_before, w.id AS final_id, w.ended_at
FROM (
    SELECT c.*, ARRAY(
        SELECT CASE WHEN 2 * p.wins > p.n THEN p.second ELSE p.first END FROM runner.final_pair p
        WHERE p.final_id = c.id AND p.told_apart AND NOT p.control) AS slower
    FROM (SELECT DISTINCT ON (o.leaderboard_id, o.gpu_type) o.* FROM runner.final_sweep o
          WHERE o.status = 'completed' ORDER BY o.leaderboard_id, o.gpu_type, o.id DESC) AS c
    OFFSET 0
) AS w
JOIN leaderboard.leaderboard l ON l.id = w.leaderboard_id
JOIN runner.final_entry e ON e.final_id = w.id AND e.number > 0
JOIN leaderboard.submission s ON s.id = e.submission_id
JOIN leaderboard.user_info u ON u.id = s.user_id
CROSS JOIN LATERAL (
    SELECT x.*, (SELECT max(k) FROM generate_series(0, (x.n - 1) / 2) AS k
                 WHERE runner.tie_bound(x.n, k) <= 0.05) AS outside,
           (SELECT max(h.score) / min(h.score) FROM (
                SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY v.p25) AS score FROM runner.final_score v
                WHERE v.final_id = w.id AND v.number = e.number GROUP BY v.host) AS h) AS spread_hosts,
           (SELECT max(h.score) / min(h.score) FROM (
                SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY v.p25) AS score FROM runner.final_score v
                WHERE v.final_id = w.id AND v.number = e.number GROUP BY v.round) AS h) AS spread_rounds
    FROM (
        SELECT count(*)::integer AS n, count(DISTINCT v.host)::integer AS hosts,
               array_agg(v.p25 ORDER BY v.p25) AS scores,
               percentile_cont(0.5) WITHIN GROUP (ORDER BY v.p25) AS score
        FROM runner.final_score v WHERE v.final_id = w.id AND v.number = e.number
    ) AS x
) AS m;
COMMENT ON VIEW runner.final_ranking IS
    'The last final of each leaderboard and GPU type: shared ranks, medians of lower quartiles of calls in seconds '
    'with 95 % intervals, and the largest median over the smallest, of hosts and of rounds.';
