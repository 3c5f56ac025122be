-- The data export without code. A login that exports also needs SELECT (id, code, old_code) ON leaderboard.code_files.
GRANT SELECT ON runner.dataset_submissions, runner.dataset_ranking, runner.dataset_progression, runner.dataset_quality,
    runner.dataset_people, runner.dataset_runs, runner.dataset_leaderboards, runner.dataset_users,
    runner.entry, runner.entry_plain, runner.oddity_plain, runner.run_figures TO runner_readonly;
