-- An operator sets what ranks on a leaderboard, who reads its code, how many jobs a user may have open, and pauses it.
GRANT EXECUTE ON FUNCTION runner.set_demand, runner.set_open_code, runner.set_open_jobs, runner.pause_board,
    runner.resume_board TO runner_operator;
-- It has results evaluated again and takes them out of the ranking.
GRANT EXECUTE ON FUNCTION runner.matching, runner.rerun, runner.invalidate TO runner_operator;
