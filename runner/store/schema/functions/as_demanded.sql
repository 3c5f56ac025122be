-- A public run's score and system_info on a leaderboard that ranks these timings (NULL: any): the score of another
-- timing moves to system_info.runner.unranked, and back.
CREATE OR REPLACE FUNCTION runner.as_demanded(ranked text[], INOUT score numeric, INOUT system_info jsonb)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(coalesce(system_info #>> '{runner,assurance,timing}', 'claimed') = ANY (ranked), true) THEN
        IF system_info #> '{runner,unranked}' IS NOT NULL THEN
            score := (system_info #>> '{runner,unranked,score_s}')::numeric;
            system_info := system_info #- '{runner,unranked}';
        END IF;
    ELSIF score IS NOT NULL THEN
        system_info := system_info || jsonb_build_object('runner', coalesce(system_info -> 'runner', '{}')
            || jsonb_build_object('unranked', jsonb_build_object('score_s', score)));
        score := NULL;
    END IF;
END
$$;
