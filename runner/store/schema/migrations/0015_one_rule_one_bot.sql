-- runner.counting_score alone says which scores count.
DROP VIEW runner.valid_score;
-- It returns the targets that name leaderboards which are not there.
DROP FUNCTION runner.set_webhooks(jsonb);
-- Which process serves Discord.
CREATE TABLE runner.discord_bot (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    holder uuid,
    held_until timestamptz NOT NULL DEFAULT '-infinity'
);
COMMENT ON TABLE runner.discord_bot IS 'The process that serves Discord: two would answer everything twice.';
INSERT INTO runner.discord_bot DEFAULT VALUES;
