-- Queries on the submissions, for psql and for pandas.read_sql. They only read. Edit the leaderboard ids by hand.
--
-- Scores are seconds; lower is better. A score is there exactly where it ranks: the public and the secret ranked run
-- passed, the submission is not marked as hacked, the time is what the leaderboard demands, and the value can be a
-- time. The views also say what an unusable score was and why it does not count (score_raw, score_invalid_reason).

-- ============================================================================
-- LIST ALL PROBLEMS
-- ============================================================================
SELECT l.id, l.name, l.deadline, l.description, array_agg(g.gpu_type ORDER BY g.gpu_type) AS gpu_types
FROM leaderboard.leaderboard l
LEFT JOIN leaderboard.gpu_type g ON g.leaderboard_id = l.id
GROUP BY l.id, l.name, l.deadline, l.description
ORDER BY l.id;

-- ============================================================================
-- CHECK SUBMISSION COUNTS FOR A PROBLEM
-- ============================================================================
-- All submissions, not de-duplicated.
SELECT count(DISTINCT p.submission_id) AS total_submissions, count(DISTINCT p.user_id) AS unique_users
FROM runner.dataset_progression p
WHERE p.leaderboard_id = 595;

-- ============================================================================
-- EXPORT DEDUPLICATED SUBMISSIONS WITH CODE
-- ============================================================================
-- The best row of each user, code and runner. Code that PostgreSQL cannot hold as text (not UTF-8, or with a NUL) comes
-- with the bytes in question written as \ooo; `kernel-runner data export` keeps it as it is. Reading the code needs
-- SELECT (id, code, old_code) ON leaderboard.code_files.
SELECT d.submission_id, d.leaderboard_id, d.problem_name, d.user_id, d.user_name, d.code_id, d.file_name,
       d.submission_time, d.status, d.score, d.passed, d.mode, d.runner,
       coalesce(c.old_code, CASE
           WHEN encode(c.code, 'hex') ~ ('^(0[1-9a-f]|[1-7][0-9a-f]|(c[2-9a-f]|d[0-9a-f])[89ab][0-9a-f]'
                || '|(e0[ab][0-9a-f]|e[1-9a-cef][89ab][0-9a-f]|ed[89][0-9a-f])[89ab][0-9a-f]'
                || '|(f0[9ab][0-9a-f]|f[1-3][89ab][0-9a-f]|f48[0-9a-f])[89ab][0-9a-f][89ab][0-9a-f])*$')
           THEN convert_from(c.code, 'UTF8')
           ELSE encode(c.code, 'escape')
       END) AS code
FROM runner.dataset_submissions d
JOIN leaderboard.code_files c ON c.id = d.code_id
WHERE d.leaderboard_id IN (595, 597, 598, 730)
ORDER BY d.problem_name, d.score, d.submission_time, d.submission_id, d.runner;

-- ============================================================================
-- GET TOP N SUBMISSIONS
-- ============================================================================
-- The best of each user, per runner.
SELECT r.rank, r.user_id, r.user_name, r.runner, r.score, r.submission_id, r.submission_time
FROM runner.dataset_ranking r
WHERE r.leaderboard_id = 595 AND r.rank <= 10
ORDER BY r.runner, r.score, r.submission_time, r.submission_id;

-- ============================================================================
-- GET USER PROGRESSION OVER TIME
-- ============================================================================
SELECT p.submission_id, p.submission_time, p.runner, p.score, p.passed, p.best_so_far
FROM runner.dataset_progression p
WHERE p.leaderboard_id = 595 AND p.user_name = 'gau.nernst'
ORDER BY p.submission_time, p.submission_id;
