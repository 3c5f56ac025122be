-- Adds the next job of each host of these finals, one at a time on a host, in the order drawn for the round. A round is
-- over when all hosts have ended it. Only then does anybody look at the order, since half a round says who has been
-- lucky so far: a final whose pairs are all told apart, or that had its rounds, is completed. A host that drains, was
-- away for ten minutes, or has no slot that can be used is passed over; once back, it goes on in the present round.
-- While all are, the final waits.
CREATE OR REPLACE FUNCTION runner.advance_finals(final_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_final record;
    v_user_id text;
    -- Of validations, too: users go before.
    v_priority integer := -1000;
    v_ready boolean;
    v_hosts text[];
    v_round integer;
BEGIN
    FOR v_final IN
        SELECT f.* FROM runner.final_sweep f
        WHERE f.id = ANY (advance_finals.final_ids) AND f.status = 'running' ORDER BY f.id FOR NO KEY UPDATE
    LOOP
        v_user_id := format('final %s', v_final.id);
        v_ready := NOT EXISTS (SELECT FROM runner.board b
                               WHERE b.leaderboard_id = v_final.leaderboard_id AND b.paused IS NOT NULL);
        v_hosts := ARRAY(SELECT x.name FROM runner.host x
                         WHERE x.name = ANY (v_final.hosts) AND NOT x.draining AND x.stopped_at IS NULL
                           AND v_final.gpu_type = ANY (x.gpu_types)
                           AND x.last_seen > now() - interval '10 minutes');
        CONTINUE WHEN v_hosts = '{}';
        DELETE FROM runner.job j USING (
            SELECT o.id FROM runner.job o
            WHERE o.final_id = v_final.id AND o.state = 'queued' AND o.only_host <> ALL (v_hosts)
            ORDER BY o.id FOR UPDATE SKIP LOCKED
        ) AS gone WHERE j.id = gone.id;
        SELECT coalesce(max(j.round), 1) INTO v_round FROM runner.job j WHERE j.final_id = v_final.id;
        LOOP
            INSERT INTO runner.job (final_id, finalist, round, only_host, validates, user_id, gpu_type, mode, secret,
                                    priority, turn, ready)
            SELECT v_final.id, n.number, v_round, h.host, n.submission_id, v_user_id, v_final.gpu_type, 'final', true,
                   v_priority, runner.take_turns(v_user_id, v_final.gpu_type, v_priority), v_ready
            FROM unnest(v_hosts) AS h (host)
            CROSS JOIN LATERAL (
                SELECT f.number, f.submission_id FROM runner.final_entry f
                -- One that is being deleted is passed over.
                JOIN leaderboard.submission s ON s.id = f.submission_id
                WHERE f.final_id = v_final.id AND f.fault IS NULL
                  AND NOT EXISTS (SELECT FROM runner.job j
                                  WHERE j.final_id = v_final.id AND j.only_host = h.host
                                    AND (j.round = v_round AND j.finalist = f.number
                                        OR j.state IN ('queued', 'running')))
                ORDER BY sha256(convert_to(concat_ws(' ', v_final.shuffle, v_round, f.number, h.host), 'UTF8')) LIMIT 1
                FOR KEY SHARE OF s SKIP LOCKED
            ) AS n;
            EXIT WHEN EXISTS (SELECT FROM runner.job j
                              WHERE j.final_id = v_final.id AND j.state IN ('queued', 'running'));
            IF v_round >= v_final.rounds OR NOT EXISTS (
                SELECT FROM runner.final_pair p WHERE p.final_id = v_final.id AND NOT p.control
                    AND NOT p.told_apart) THEN
                UPDATE runner.final_sweep f SET status = 'completed', ended_at = now() WHERE f.id = v_final.id;
                EXIT;
            END IF;
            v_round := v_round + 1;
        END LOOP;
    END LOOP;
END
$$;
