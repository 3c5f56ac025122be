-- Orders a final: the best submissions of a ranking are evaluated again, in rounds with a secret seed each, one after
-- the other in an order drawn for each round, on every live host of the GPU type. The first is also evaluated under
-- another name, as the control. Refused while the leaderboard is open, unless `open` says that this is meant.
CREATE OR REPLACE FUNCTION runner.final(
    leaderboard text, gpu_type text DEFAULT NULL, top integer DEFAULT 10, rounds integer DEFAULT 25,
    open boolean DEFAULT false, OUT final_id bigint, OUT finalists integer, OUT hosts integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_board record;
    v_gpu_type text;
    v_ids integer[];
    v_hosts text[];
    v_fewest integer;
BEGIN
    PERFORM runner.check_isolation();
    final.top := coalesce(final.top, 10);
    final.rounds := coalesce(final.rounds, 25);
    -- Of two calls the second sees the final of the first.
    PERFORM runner.hold_board(final.leaderboard);
    SELECT l.id, l.deadline INTO v_board FROM leaderboard.leaderboard l WHERE l.name = final.leaderboard;
    IF v_board.deadline >= now() AND NOT coalesce(final.open, false) THEN
        PERFORM runner.refuse('KR035',
            format('leaderboard %L is open until %s UTC', final.leaderboard,
                   to_char(v_board.deadline AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')),
            'Hold the final after that, or with open => true (kernel-runner leaderboard final --open).');
    END IF;
    v_gpu_type := (runner.choose_gpu_types(v_board.id, array_remove(ARRAY[final.gpu_type], NULL), NULL))[1];
    IF EXISTS (SELECT FROM runner.final_sweep f
               WHERE f.leaderboard_id = v_board.id AND f.gpu_type = v_gpu_type AND f.status = 'running') THEN
        PERFORM runner.refuse('KR035',
            format('a final of leaderboard %L runs on %s already', final.leaderboard, v_gpu_type),
            'Wait for it, or cancel it.');
    END IF;

    SELECT array_agg(c.submission_id ORDER BY c.rank, c.submission_time, c.submission_id) INTO v_ids
    FROM (
        SELECT r.submission_id, r.rank, r.submission_time FROM runner.ranking r
        WHERE r.leaderboard = final.leaderboard AND r.gpu_type = v_gpu_type AND r.rank <= final.top
    ) AS c
    CROSS JOIN LATERAL (SELECT s.id FROM leaderboard.submission s WHERE s.id = c.submission_id FOR KEY SHARE) AS s;
    finalists := coalesce(cardinality(v_ids), 0);
    IF finalists NOT BETWEEN 2 AND 50 THEN
        PERFORM runner.refuse('KR035', format('the final would have %s finalists, expected 2 to 50', finalists),
            'Ask for the best 2 to 50 of a leaderboard with at least two ranked users.');
    END IF;
    SELECT array_agg(h.name ORDER BY h.name) INTO v_hosts FROM runner.host h
    WHERE v_gpu_type = ANY (h.gpu_types) AND NOT h.draining AND h.stopped_at IS NULL
      AND h.last_seen > now() - interval '60 seconds';
    hosts := coalesce(cardinality(v_hosts), 0);
    IF hosts = 0 THEN
        PERFORM runner.refuse('KR035', format('no host serves %s now', v_gpu_type),
            'Start a daemon, or undrain its host.');
    END IF;
    -- With fewer rounds no order could be clear, not even where one is faster in all of them.
    SELECT min(n.rounds) INTO v_fewest FROM generate_series(1, 1000) AS n (rounds)
    WHERE runner.tie_bound(n.rounds * hosts, 0) * (finalists * (finalists - 1) / 2) <= 0.05;
    IF (final.rounds BETWEEN v_fewest AND 1000) IS NOT TRUE THEN
        PERFORM runner.refuse('KR035',
            format('%s rounds of %s finalists on %s hosts, expected %s to 1000', final.rounds, finalists, hosts,
                   v_fewest),
            'With fewer no order could be clear.');
    END IF;

    INSERT INTO runner.final_sweep (leaderboard_id, gpu_type, rounds, hosts)
    VALUES (v_board.id, v_gpu_type, final.rounds, v_hosts) RETURNING id INTO final_id;
    INSERT INTO runner.finalist (final_id, number, submission_id)
    SELECT final_id, 0, v_ids[1]
    UNION ALL SELECT final_id, u.number, u.id FROM unnest(v_ids) WITH ORDINALITY AS u (id, number);
    PERFORM runner.advance_finals(ARRAY[final_id]);
    PERFORM runner.call('runner_queue', v_gpu_type);
END
$$;
