-- A deadline that Python has no datetime for spoils every list that its leaderboard stands in, KernelBot's too. One that is
-- there is moved to the last day that both have.
UPDATE leaderboard.leaderboard
SET deadline = least(greatest(deadline, '0001-01-02Z'), '9999-12-30Z')
WHERE deadline NOT BETWEEN '0001-01-02Z' AND '9999-12-30Z';
ALTER TABLE leaderboard.leaderboard DROP CONSTRAINT IF EXISTS runner_deadline;
ALTER TABLE leaderboard.leaderboard
    ADD CONSTRAINT runner_deadline CHECK (deadline BETWEEN '0001-01-02Z' AND '9999-12-30Z');
