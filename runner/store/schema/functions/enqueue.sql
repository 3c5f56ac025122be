-- Adds jobs to a leaderboard.submission row that a frontend has made itself. Returns how many. Bans, deadlines,
-- invitations and the cap on open jobs hold as in runner.submit. The hourly limits count rows, which the frontend has
-- made; a test submission to which a ranked job is added becomes a ranked one, and counts as such.
CREATE OR REPLACE FUNCTION runner.enqueue(
    submission_id bigint, mode text, gpu_types text[], priority integer DEFAULT 0, options jsonb DEFAULT NULL
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_submission record;
    v_source text;
    v_directives record;
    v_gpu_types text[];
    v_open text;
    v_added integer;
BEGIN
    PERFORM runner.check_isolation();
    PERFORM runner.check_mode(enqueue.mode);
    -- As in runner.submit, a user's calls pass one by one: limit and cap need that.
    PERFORM FROM leaderboard.user_info u
    WHERE u.id = (SELECT s.user_id FROM leaderboard.submission s WHERE s.id = enqueue.submission_id) FOR NO KEY UPDATE;
    SELECT s.id, s.leaderboard_id, s.done, s.code_id, s.user_id, s.submission_time, s.mode_category INTO v_submission
    FROM leaderboard.submission s WHERE s.id = enqueue.submission_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR015', format('submission %s does not exist', enqueue.submission_id),
            'Store it first.');
    END IF;
    -- Also finished if the open jobs are only reruns.
    IF v_submission.done OR EXISTS (
        SELECT FROM runner.job j
        WHERE j.submission_id = v_submission.id AND j.state IN ('queued', 'running')
        HAVING bool_and(j.replaces IS NOT NULL)
    ) THEN
        PERFORM runner.refuse('KR016', format('submission %s is finished', enqueue.submission_id),
            'No run may be added to a finished submission; submit the file again.');
    END IF;
    PERFORM runner.check_entry(v_submission.leaderboard_id, v_submission.user_id,
        -- The first jobs of a submission are as old as its row.
        CASE WHEN EXISTS (SELECT FROM runner.job j WHERE j.submission_id = v_submission.id) THEN now()
             ELSE v_submission.submission_time END);
    SELECT runner.check_source(c.code) INTO v_source FROM leaderboard.code_files c WHERE c.id = v_submission.code_id;
    SELECT * INTO v_directives FROM runner.parse_directives(v_source);
    v_gpu_types := runner.choose_gpu_types(v_submission.leaderboard_id, enqueue.gpu_types, v_directives.gpu_types);
    PERFORM runner.check_options(v_submission.leaderboard_id, enqueue.mode, v_gpu_types, enqueue.options);
    SELECT j.gpu_type INTO v_open FROM runner.job j
    WHERE j.submission_id = v_submission.id AND j.mode = enqueue.mode AND j.gpu_type = ANY (v_gpu_types)
      AND j.state IN ('queued', 'running')
    LIMIT 1;
    IF FOUND THEN
        PERFORM runner.refuse('KR017',
            format('submission %s already waits for mode %s on %s', enqueue.submission_id, enqueue.mode, v_open),
            'Wait for it, or cancel it.');
    END IF;
    IF enqueue.mode = 'leaderboard' AND v_submission.mode_category <> 'leaderboard' THEN
        PERFORM runner.check_hourly_limit(v_submission.leaderboard_id, v_submission.user_id, 'leaderboard');
    END IF;
    PERFORM runner.check_open_jobs(v_submission.leaderboard_id, v_submission.user_id, enqueue.mode,
        cardinality(v_gpu_types));
    UPDATE leaderboard.submission s
    SET mode_category = CASE enqueue.mode WHEN 'leaderboard' THEN 'leaderboard' ELSE 'test' END
    WHERE s.id = v_submission.id
      AND (s.mode_category IS NULL OR enqueue.mode = 'leaderboard' AND s.mode_category <> 'leaderboard');
    v_added := runner.add_jobs(v_submission.id, enqueue.mode, v_gpu_types, enqueue.priority, enqueue.options);
    UPDATE runner.job j SET enqueued = true WHERE j.submission_id = v_submission.id AND NOT j.enqueued;
    RETURN v_added;
END
$$;
