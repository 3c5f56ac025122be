-- Returns the directives in the comment lines that a source file begins with, of which the first 64 count. No other
-- code reads them.
CREATE OR REPLACE FUNCTION runner.parse_directives(source text, OUT leaderboard text, OUT gpu_types text[])
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    head text := substring(source FROM E'^(?:(?:#|//)[^\r\n]*(?:\r\n|\r|\n|$)){1,64}');
    line text;
    words text[];
    keyword text;
BEGIN
    IF head IS NULL OR position('!POPCORN' IN head) = 0 THEN
        RETURN;
    END IF;
    FOR line IN SELECT t.line FROM regexp_split_to_table(head, E'\r\n|\r|\n') AS t (line) LOOP
        words := regexp_split_to_array(btrim(line, E' \t\f\v'), E'\\s+');
        CONTINUE WHEN words[1] NOT IN ('#!POPCORN', '//!POPCORN');
        keyword := lower(words[2]);
        IF keyword IS NULL OR keyword NOT IN ('leaderboard', 'gpu', 'gpus') THEN
            PERFORM runner.refuse('KR009', format('unknown directive %L', left(line, 200)),
                'Write "#!POPCORN leaderboard NAME" or "#!POPCORN gpus A B", with // in place of # in C++ and CUDA.');
        ELSIF words[3] IS NULL THEN
            PERFORM runner.refuse('KR009', format('directive %L names nothing', left(line, 200)),
                'Write a name after the keyword, or remove the line.');
        ELSIF keyword = 'leaderboard' THEN
            IF parse_directives.leaderboard IS NOT NULL THEN
                PERFORM runner.refuse('KR009', 'two leaderboard directives', 'Keep one of them.');
            END IF;
            parse_directives.leaderboard := words[3];
        ELSE
            IF parse_directives.gpu_types IS NOT NULL THEN
                PERFORM runner.refuse('KR009', 'two gpu directives', 'Name all GPU types in one line.');
            END IF;
            parse_directives.gpu_types := words[3:];
        END IF;
    END LOOP;
END
$$;
