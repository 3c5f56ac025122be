-- Finals: the best submissions of a ranking are evaluated again in rounds, each job on the host that it is for.
CREATE TABLE runner.final_sweep (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    leaderboard_id integer NOT NULL REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    gpu_type text NOT NULL,
    rounds integer NOT NULL CHECK (rounds > 0),
    hosts text[] NOT NULL,
    shuffle uuid NOT NULL DEFAULT gen_random_uuid(),
    status text NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'completed', 'cancelled')),
    ordered_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    CONSTRAINT final_sweep_ended CHECK ((status = 'running') = (ended_at IS NULL))
);
CREATE UNIQUE INDEX final_sweep_running_key ON runner.final_sweep (leaderboard_id, gpu_type) WHERE status = 'running';
CREATE INDEX final_sweep_latest_idx ON runner.final_sweep (leaderboard_id, gpu_type, id);
COMMENT ON TABLE runner.final_sweep IS 'Finals of leaderboards, which runner.final orders.';
COMMENT ON COLUMN runner.final_sweep.rounds IS 'At most; a final ends before, once its order is clear.';
COMMENT ON COLUMN runner.final_sweep.hosts IS 'Each evaluates every finalist once in each round.';
COMMENT ON COLUMN runner.final_sweep.shuffle IS 'What the order of each round on each host is drawn from.';
CREATE TABLE runner.finalist (
    final_id bigint REFERENCES runner.final_sweep (id) ON DELETE CASCADE,
    number integer,
    submission_id integer NOT NULL REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    fault text,
    PRIMARY KEY (final_id, number)
);
CREATE INDEX finalist_submission_idx ON runner.finalist (submission_id);
COMMENT ON TABLE runner.finalist IS 'The submissions of a final, and its control.';
COMMENT ON COLUMN runner.finalist.number IS
    'Its place in the ranking before the final; 0: the control, which is the first once more under another name.';
COMMENT ON COLUMN runner.finalist.fault IS 'The verdict that put it out, and the round; NULL: none.';
CREATE TABLE runner.final_score (
    final_id bigint,
    number integer,
    round integer,
    host text,
    score double precision NOT NULL CHECK (score > 0),
    scored_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (final_id, number, round, host),
    FOREIGN KEY (final_id, number) REFERENCES runner.finalist (final_id, number) ON DELETE CASCADE
);
COMMENT ON TABLE runner.final_score IS 'What finals measured; seconds.';
ALTER TABLE runner.job
    ADD COLUMN final_id bigint REFERENCES runner.final_sweep (id) ON DELETE CASCADE,
    ADD COLUMN finalist integer,
    ADD COLUMN round integer,
    ADD COLUMN only_host text,
    DROP CONSTRAINT job_mode_check,
    ADD CONSTRAINT job_mode_check CHECK (
        mode IN ('test', 'benchmark', 'profile', 'leaderboard', 'private', 'validation', 'final')),
    DROP CONSTRAINT job_validates_in_a_sweep,
    ADD CONSTRAINT job_validates_in_a_sweep CHECK (num_nonnulls(validates) = num_nonnulls(sweep_id, final_id)),
    ADD CONSTRAINT job_of_a_final CHECK (
        num_nonnulls(final_id, finalist, round, only_host) = CASE mode WHEN 'final' THEN 4 ELSE 0 END);
COMMENT ON COLUMN runner.job.state IS
    'Written by claim, complete, leave, follow_public, cancel, cancel_batch and cancel_sweep alone; new jobs are queued.';
COMMENT ON COLUMN runner.job.validates IS
    'The submission that the job validates, or evaluates for a final; it is no job of the submission, so it changes nothing there.';
COMMENT ON COLUMN runner.job.final_id IS 'The final that it is an evaluation of.';
COMMENT ON COLUMN runner.job.finalist IS 'The number of the finalist.';
COMMENT ON COLUMN runner.job.round IS 'The round of the final.';
COMMENT ON COLUMN runner.job.only_host IS 'The only host that claims it; NULL: any.';

