-- A deadline that Python has no datetime for spoils every list that its leaderboard stands in, KernelBot's too. One that is
-- there is moved to the last day that both have.
UPDATE leaderboard.leaderboard
SET deadline = least(greatest(deadline, '0001-01-02Z'), '9999-12-30Z')
WHERE deadline NOT BETWEEN '0001-01-02Z' AND '9999-12-30Z';
ALTER TABLE leaderboard.leaderboard DROP CONSTRAINT IF EXISTS runner_deadline;
ALTER TABLE leaderboard.leaderboard
    ADD CONSTRAINT runner_deadline CHECK (deadline BETWEEN '0001-01-02Z' AND '9999-12-30Z');

-- Logins that wait for approval, by the address that asked.
CREATE TABLE runner.waiting_login (
    id text PRIMARY KEY REFERENCES leaderboard.user_info (id) ON DELETE CASCADE,
    origin text NOT NULL,
    since timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE runner.waiting_login IS 'Logins that nobody has approved yet.';
COMMENT ON COLUMN runner.waiting_login.origin IS
    'A digest of the address that asked, with a key that the gateway''s process alone has and forgets.';
DROP FUNCTION IF EXISTS runner.begin_login(text, text, text);
