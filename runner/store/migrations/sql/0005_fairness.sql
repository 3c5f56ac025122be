-- What a fair, fenced and repairable queue keeps: turns, causes, what a result replaces, and the hosts' own state.

-- Start-time fair queueing per class (GPU type, priority): a job's turn is its start tag (Goyal, Vin, Cheng: Start-time
-- Fair Queueing, 1996). Within a class the lowest turn is served first; among equals the oldest job.
CREATE TABLE runner.clock (
    gpu_type text NOT NULL,
    priority integer NOT NULL,
    turn bigint NOT NULL,
    PRIMARY KEY (gpu_type, priority)
) WITH (fillfactor = 50);
COMMENT ON TABLE runner.clock IS 'Virtual time of a class: the highest turn claimed so far. May lag by the claims in flight.';

CREATE TABLE runner.share (
    user_id text NOT NULL,
    gpu_type text NOT NULL,
    priority integer NOT NULL,
    next_turn bigint NOT NULL,
    PRIMARY KEY (user_id, gpu_type, priority)
);
COMMENT ON TABLE runner.share IS 'The turn of a user''s next submission in a class, unless the clock is further. A row behind its clock says nothing.';

ALTER TABLE runner.job
    ADD COLUMN user_id text,
    ADD COLUMN turn bigint NOT NULL DEFAULT 0,
    ADD COLUMN causes jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN slot text,
    ADD COLUMN avoid_host text,
    ADD COLUMN avoid_slot text,
    ADD COLUMN avoid_until timestamptz,
    ADD COLUMN reserved_by text,
    ADD COLUMN reserved_until timestamptz,
    ADD COLUMN replaces bigint REFERENCES runner.job (id) ON DELETE SET NULL,
    ADD COLUMN retired_at timestamptz,
    ADD COLUMN retired_reason text;
UPDATE runner.job j SET user_id = s.user_id FROM leaderboard.submission s WHERE s.id = j.submission_id;
ALTER TABLE runner.job ALTER COLUMN user_id SET NOT NULL;
COMMENT ON COLUMN runner.job.turn IS 'Start tag of fair queueing within (gpu_type, priority); kept when the job is queued again.';
COMMENT ON COLUMN runner.job.causes IS 'Why attempts ended without a result, oldest first: {attempt, host, slot, kind, error, at}.';
COMMENT ON COLUMN runner.job.slot IS 'The slot that failed it last; stays when the lease ends.';
COMMENT ON COLUMN runner.job.avoid_host IS 'Until avoid_until not claimed by this host (avoid_slot NULL), or not run on this slot of it.';
COMMENT ON COLUMN runner.job.reserved_by IS 'Until reserved_until this host keeps devices free for it; anybody may claim it sooner.';
COMMENT ON COLUMN runner.job.replaces IS 'The job that this one evaluates again.';
COMMENT ON COLUMN runner.job.retired_at IS 'Set: its result no longer counts, see retired_reason. Nothing is deleted.';

DROP INDEX runner.job_claim_idx;
CREATE INDEX job_claim_idx ON runner.job (gpu_type, priority DESC, turn, id) WHERE state = 'queued';
CREATE INDEX job_replaces_idx ON runner.job (replaces) WHERE replaces IS NOT NULL;
CREATE INDEX job_finished_idx ON runner.job (host, finished_at) WHERE state = 'done';

-- Moved here whole, so that every reader of leaderboard.runs, KernelBot's own tools too, sees what counts and no more.
CREATE TABLE runner.superseded_run (
    run_id integer PRIMARY KEY,
    submission_id integer NOT NULL REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    job_id bigint REFERENCES runner.job (id) ON DELETE CASCADE,
    run jsonb NOT NULL,
    reason text NOT NULL,
    superseded_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX superseded_run_submission_idx ON runner.superseded_run (submission_id);
CREATE INDEX superseded_run_job_idx ON runner.superseded_run (job_id);
COMMENT ON TABLE runner.superseded_run IS 'Rows of leaderboard.runs that no longer count, whole, with the reason.';

CREATE TABLE runner.event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL CHECK (kind IN (
        'failed', 'reclaimed', 'released', 'stale', 'superseded', 'invalidated', 'rerun', 'drained', 'undrained')),
    submission_id integer REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    job_id bigint REFERENCES runner.job (id) ON DELETE CASCADE,
    attempt integer,
    host text,
    detail jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX event_submission_idx ON runner.event (submission_id, id);
CREATE INDEX event_job_idx ON runner.event (job_id);
CREATE INDEX event_at_idx ON runner.event (at);
COMMENT ON TABLE runner.event IS 'What happened out of the ordinary, for operators; removed after a while.';

ALTER TABLE runner.host
    ADD COLUMN instance text,
    ADD COLUMN gpu_types text[] NOT NULL DEFAULT '{}',
    ADD COLUMN stopped_at timestamptz,
    ADD COLUMN drain_reason text;
COMMENT ON COLUMN runner.host.instance IS 'Identity of the daemon''s state directory; two daemons must not share a name.';
COMMENT ON COLUMN runner.host.gpu_types IS 'Every name, aliases included, a job may use for one of its slots.';
COMMENT ON COLUMN runner.host.draining IS 'Finishes what runs and claims nothing, until undrained; survives restarts.';
COMMENT ON COLUMN runner.host.stopped_at IS 'Set when the daemon said goodbye.';
