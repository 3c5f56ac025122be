-- Each pair of a final's entries, compared by the rounds in which both have a score on the same host.
--
-- Of two equal kernels either may be the faster one of a round, with the same chance, whatever the noise: the order of
-- each round on each host is drawn anew. So what counts is who was faster how often (runner.tie_bound). Over the pairs
-- of a final by S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics
-- 6 (1979). The control is compared with the first entry alone, and is no pair of these.
--
-- What else a host does lengthens some calls, and so the mean, but hardly their lower quartile. A kernel whose own
-- calls differ could gain by that, so the mean times must have the same order: their lowest tenth, where the host was
-- quiet.
CREATE OR REPLACE VIEW runner.final_pair AS
WITH pair AS (
    SELECT a.final_id, a.number AS first, b.number AS second, a.number = 0 AS control,
           x.n, x.wins, x.ratios, x.mean_ratio, runner.tie_bound(x.n, x.wins) AS bound,
           -- The interval is between two of the sorted ratios, so that it holds the median however often one looks: the
           -- same bound for the median. D. Darling, H. Robbins, PNAS 58 (1967), pp. 66-68.
           (SELECT max(k) FROM generate_series(0, (x.n - 1) / 2) AS k WHERE runner.tie_bound(x.n, k) <= 0.05) AS outside
    FROM runner.final_entry a
    JOIN runner.final_entry b ON b.final_id = a.final_id AND b.number > a.number AND (a.number > 0 OR b.number = 1)
    CROSS JOIN LATERAL (
        SELECT count(*)::integer AS n, (count(*) FILTER (WHERE t.p25 > s.p25))::integer AS wins,
               array_agg(t.p25 / s.p25 ORDER BY t.p25 / s.p25) AS ratios,
               percentile_cont(0.1) WITHIN GROUP (ORDER BY t.score)
                   / percentile_cont(0.1) WITHIN GROUP (ORDER BY s.score) AS mean_ratio
        FROM runner.final_score s
        JOIN runner.final_score t ON t.final_id = s.final_id AND t.round = s.round AND t.host = s.host
        WHERE s.final_id = a.final_id AND s.number = a.number AND t.number = b.number AND t.p25 <> s.p25
    ) AS x
    WHERE a.fault IS NULL AND b.fault IS NULL
), placed AS (
    SELECT p.*, row_number() OVER (PARTITION BY p.final_id, p.control ORDER BY p.bound, p.first, p.second) AS place,
           count(*) OVER (PARTITION BY p.final_id, p.control) AS pairs
    FROM pair p
)
SELECT p.final_id, p.first, p.second, p.control, p.n, p.wins,
       (p.ratios[(p.n + 1) / 2] + p.ratios[p.n / 2 + 1]) / 2 AS ratio,
       p.ratios[p.outside + 1] AS ratio_low, p.ratios[p.n - p.outside] AS ratio_high, p.error,
       p.error <= 0.05 AND (2 * p.wins > p.n) = (p.mean_ratio > 1) AS told_apart, p.mean_ratio
FROM (
    SELECT o.*, max(least(1, o.bound * (o.pairs - o.place + 1)))
        OVER (PARTITION BY o.final_id, o.control ORDER BY o.place) AS error
    FROM placed o
) AS p;
COMMENT ON VIEW runner.final_pair IS
    'Pairs of a final: `first` was faster in `wins` of `n` rounds; `ratio` is the time of `second` over that of '
    '`first`, '
    'with a 95 % interval; they are told apart where `error`, the chance of that for equal kernels, is at most '
    '0.05, and '
    '`mean_ratio` has the same order: the lowest tenth of the mean times, of `second` over `first`.';
