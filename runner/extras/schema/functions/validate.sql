-- Queues validations by the task's own script: of the best submission of each of the ten best users on a GPU type, or
-- of `all_users`; with `only_missing` of those without a result of the task's present version, where a fault of ours is
-- none. A submission whose validation waits or runs is left out. Returns the sweep, a row of KernelBot's table, and how
-- many jobs it has.
--
-- The jobs have the lowest priority, so any other that waits is claimed first, and two of a sweep may be claimed at a
-- time: a run is not interrupted, and one that took every slot would hold up users for as long as its script runs.
CREATE OR REPLACE FUNCTION runner.validate(
    leaderboard text, gpu_type text, all_users boolean DEFAULT false, only_missing boolean DEFAULT false,
    OUT sweep_id bigint, OUT contract_version text, OUT jobs integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_board record;
    v_gpu_type text;
    v_priority integer := -1000;
    v_user_id text;
    v_ids integer[];
    v_turn bigint;
BEGIN
    PERFORM runner.check_isolation();
    -- Of two calls the second sees the jobs of the first.
    PERFORM runner.hold_board(validate.leaderboard);
    SELECT l.id, l.task -> 'validation' ->> 'version' AS version,
           l.task -> 'validation' ->> 'source' AS source INTO v_board
    FROM leaderboard.leaderboard l WHERE l.name = validate.leaderboard;
    IF coalesce(v_board.version, '') = '' OR coalesce(v_board.source, '') = '' THEN
        PERFORM runner.refuse('KR033', format('the task of leaderboard %L has no validation', validate.leaderboard),
            'Give task.yml a validation with version and script, and update the leaderboard.');
    END IF;
    IF to_regclass('leaderboard.submission_validation') IS NULL THEN
        PERFORM runner.refuse('KR033', 'this database has no tables for validations',
            'Apply KernelBot''s migration 20260726_01_application-validation: run `kernel-runner migrate --roles`, or '
            'KernelBot.');
    END IF;
    v_gpu_type := (runner.choose_gpu_types(v_board.id, ARRAY[validate.gpu_type], NULL))[1];

    SELECT array_agg(c.submission_id ORDER BY c.rank) INTO v_ids
    FROM (
        SELECT r.submission_id, r.rank FROM runner.ranking r
        WHERE r.leaderboard = validate.leaderboard AND r.gpu_type = v_gpu_type
          AND (coalesce(validate.all_users, false) OR r.rank <= 10)
    ) AS c
    CROSS JOIN LATERAL (SELECT s.id FROM leaderboard.submission s WHERE s.id = c.submission_id FOR KEY SHARE) AS s
    WHERE NOT EXISTS (SELECT FROM runner.job j WHERE j.validates = c.submission_id AND j.gpu_type = v_gpu_type
                        AND j.state IN ('queued', 'running'))
      AND NOT (coalesce(validate.only_missing, false)
               AND EXISTS (SELECT FROM leaderboard.submission_validation v
                           WHERE v.submission_id = c.submission_id AND v.gpu_type = v_gpu_type
                             AND v.contract_version = v_board.version
                             -- Of those two nothing ran, or not to its end.
                             AND (v.status = 'completed'
                                  OR coalesce(v.result ->> 'verdict', '') NOT IN ('internal_error', 'invalid'))));
    contract_version := v_board.version;
    jobs := coalesce(cardinality(v_ids), 0);

    INSERT INTO leaderboard.validation_sweep (leaderboard_id, gpu_type, contract_version, status)
    VALUES (v_board.id, v_gpu_type, v_board.version, 'running') RETURNING id INTO sweep_id;
    IF jobs > 0 THEN
        -- Sweeps take turns as users do.
        v_user_id := format('validation sweep %s', sweep_id);
        v_turn := runner.take_turns(v_user_id, v_gpu_type, v_priority, jobs);
        INSERT INTO runner.job (sweep_id, validates, user_id, gpu_type, mode, secret, priority, turn, ready)
        SELECT sweep_id, u.id, v_user_id, v_gpu_type, 'validation', false, v_priority,
               v_turn + 2 * (u.number - 1), false
        FROM unnest(v_ids) WITH ORDINALITY AS u (id, number) ORDER BY u.number;
    END IF;
    PERFORM runner.advance_sweeps(ARRAY[sweep_id]);
    PERFORM runner.call('runner_queue', v_gpu_type);
END
$$;
