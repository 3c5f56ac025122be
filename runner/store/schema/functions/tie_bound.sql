-- The most that the chance can be of two equal kernels ever coming to this: one was faster in `wins` of `n` rounds or
-- in fewer, or the other was, however often one looks. (n + 1) * C(n, wins) / 2 ^ n: H. Robbins, "Statistical Methods
-- Related to the Law of the Iterated Logarithm", Annals of Mathematical Statistics 41 (1970), pp. 1397-1409, for a
-- probability of 1/2. Kernels of which the winner is slower come to it no more often.
CREATE OR REPLACE FUNCTION runner.tie_bound(n bigint, wins bigint) RETURNS double precision
LANGUAGE sql IMMUTABLE
RETURN exp(least(0, greatest(-700,
    ln(n + 1.0::double precision) - n * ln(2.0::double precision)
    + coalesce((SELECT sum(ln((n - i + 1)::double precision / i)) FROM generate_series(1, wins) AS i), 0))));
