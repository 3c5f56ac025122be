-- Makes a process the bot for so long, or longer if it is; 0 ends that. False: another one is the bot.
CREATE OR REPLACE FUNCTION runner.hold_discord(holder uuid, seconds double precision) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM runner.check_isolation();
    UPDATE runner.discord_bot b
    SET holder = hold_discord.holder, held_until = now() + interval '1 second' * hold_discord.seconds
    WHERE b.holder = hold_discord.holder OR b.held_until < now();
    RETURN FOUND;
END
$$;
