-- Faults and oddities of the data: a row per check and run, submission or code.
--
-- unusable: the score does not rank in any view runner.dataset_*. suspect: look at it. reported: for information.
-- Checks that read the submitted code are not here; `kernel-runner data check` makes them.
CREATE OR REPLACE VIEW runner.dataset_quality AS
SELECT o."check", o.severity, o.leaderboard_id, o.problem_name, o.submission_id, o.run_id, o.runner, o.user_id, o.reason
FROM runner.oddity_plain o
UNION ALL
SELECT f."check", 'suspect', s.leaderboard_id, s.problem_name, s.submission_id, s.run_id, s.runner, s.user_id, f.reason
FROM runner.run_figures g
JOIN runner.run_scored s ON s.run_id = g.run_id
CROSS JOIN LATERAL (VALUES
    ('faster_than_light', g.faster_than_light, format('%s times the speed of light', g.highest_sol)),
    ('score_differs', g.score_differs, format('the score is %s s, its cases say %s s', s.score, g.expected))
) AS f ("check", found, reason)
WHERE f.found;
COMMENT ON VIEW runner.dataset_quality
    IS 'What is wrong or odd with scores, times and submissions, with severity and reason.';
