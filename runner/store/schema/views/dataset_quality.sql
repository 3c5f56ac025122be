-- Faults and oddities of the data: a row per check and run, submission or code. See runner.oddity.
CREATE OR REPLACE VIEW runner.dataset_quality AS
SELECT o."check", o.severity, o.leaderboard_id, o.problem_name, o.submission_id, o.run_id, o.runner, o.user_id, o.reason
FROM runner.oddity o;
COMMENT ON VIEW runner.dataset_quality IS 'What is wrong or odd with scores, times and submissions, with severity and reason.';
