-- One row: which process is the bot, and until when. No advisory lock, which any login could hold.
CREATE TABLE runner.discord_bot (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    holder uuid,
    held_until timestamptz NOT NULL DEFAULT '-infinity'
);
COMMENT ON TABLE runner.discord_bot IS 'The process that serves Discord: two would answer everything twice.';
INSERT INTO runner.discord_bot DEFAULT VALUES;
