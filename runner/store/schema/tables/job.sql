-- The queue. A row that refers to schema `leaderboard` goes with the row that it refers to, here as in every table, so
-- that KernelBot's own deletes keep working.
--
-- An evaluation is what one submission has on one GPU type in one mode: one job, or a public and a secret one. Its
-- history is the jobs of that key by id; a job with `replaces` is a rerun. A job counts while retired_at is NULL. It is
-- retired as
--   replaced     a later job of its key has a verdict of its own;
--   dropped      it was a rerun and ended as internal_error or cancelled: the result that it was to replace stands;
--   invalidated  an operator took it out. It goes on speaking for its key ("taken out of the ranking: ...") until a
--                rerun replaces it.
-- The rows that a retired job wrote leave leaderboard.runs for runner.superseded_run in the same transaction.
CREATE TABLE runner.job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- What is evaluated.
    submission_id integer REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    batch_id bigint CONSTRAINT job_batch REFERENCES runner.batch (id),
    user_id text NOT NULL,
    gpu_type text NOT NULL,
    mode text NOT NULL CHECK (
        mode IN ('test', 'benchmark', 'profile', 'leaderboard', 'private', 'validation', 'final')),
    secret boolean NOT NULL,
    enqueued boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Its place in the queue.
    priority integer NOT NULL DEFAULT 0,
    turn bigint NOT NULL DEFAULT 0,
    ready boolean NOT NULL DEFAULT true,
    after_public boolean NOT NULL DEFAULT false,
    not_before timestamptz,
    expires_at timestamptz,
    avoid_host text,
    avoid_slot text,
    avoid_until timestamptz,
    -- How it stands, and its attempts.
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'done', 'cancelled')),
    attempt integer NOT NULL DEFAULT 0,
    lease_owner text,
    lease_expires_at timestamptz,
    cancel_requested boolean NOT NULL DEFAULT false,
    host text,
    slot text,
    progress jsonb,
    started_at timestamptz,
    finished_at timestamptz,
    failures integer NOT NULL DEFAULT 0,
    reclaims integer NOT NULL DEFAULT 0,
    unanswered integer NOT NULL DEFAULT 0,
    causes jsonb NOT NULL DEFAULT '[]',
    -- Its result.
    verdict text CHECK (verdict IN (
        'accepted', 'wrong_answer', 'compile_error', 'runtime_error', 'time_limit', 'memory_limit', 'output_limit',
        'rejected', 'invalid', 'internal_error'
    )),
    error text,
    report jsonb,
    build_ms bigint,
    eval_ms bigint,
    marked_hacked boolean NOT NULL DEFAULT false,
    replaces bigint REFERENCES runner.job (id) ON DELETE SET NULL,
    retired_at timestamptz,
    retired_reason text,
    retired_as text CHECK (retired_as IN ('replaced', 'dropped', 'invalidated')),
    -- What migrations have added, in their order.
    sweep_id bigint,
    validates integer REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    options jsonb CONSTRAINT job_options_of_profile CHECK (options IS NULL OR mode = 'profile'),
    final_id bigint REFERENCES runner.final_sweep (id) ON DELETE CASCADE,
    finalist integer,
    round integer,
    only_host text,
    checked boolean NOT NULL DEFAULT false,
    CONSTRAINT job_of_one_kind CHECK (num_nonnulls(submission_id, batch_id, validates) = 1),
    CONSTRAINT job_validates_in_a_sweep CHECK (num_nonnulls(validates) = num_nonnulls(sweep_id, final_id)),
    CONSTRAINT job_of_a_final CHECK (
        num_nonnulls(final_id, finalist, round, only_host) = CASE mode WHEN 'final' THEN 4 ELSE 0 END),
    CONSTRAINT job_verdict_when_done CHECK ((state = 'done') = (verdict IS NOT NULL)),
    CONSTRAINT job_lease_when_running
        CHECK ((state = 'running') = (lease_owner IS NOT NULL)
            AND (state = 'running') = (lease_expires_at IS NOT NULL)),
    CONSTRAINT job_started_when_running CHECK (state <> 'running' OR started_at IS NOT NULL),
    CONSTRAINT job_finished_when_over CHECK ((state IN ('done', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT job_retired_when_over CHECK (
        (retired_at IS NULL) = (retired_as IS NULL) AND (retired_at IS NULL OR state IN ('done', 'cancelled')))
) WITH (
    -- Every job is written anew by its claim and by its end, and the dead rows lie where the next claim looks. They are
    -- removed after thousands of jobs, not after a fifth of all jobs there ever were. The fill factor keeps the writes
    -- of heartbeats and progress on their page.
    fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 1000
);
COMMENT ON TABLE runner.job IS
    'The queue: evaluate or validate submission S on GPU type T in mode M (public or secret), or a group of items of '
    'a batch.';
COMMENT ON COLUMN runner.job.batch_id IS 'The batch of a group; NULL: the job is of a submission.';
COMMENT ON COLUMN runner.job.options IS 'What a profile captures (runner.check_options); NULL: the defaults.';
COMMENT ON COLUMN runner.job.enqueued IS
    'Made by runner.enqueue, for a submission of somebody else, who may write results of it too.';
COMMENT ON COLUMN runner.job.turn IS
    'Start tag of fair queueing within (gpu_type, priority); kept, in general, when the job is queued again.';
COMMENT ON COLUMN runner.job.ready IS
    'False: claims do not look at it, because its start time has not come (not_before) or its leaderboard is paused.';
COMMENT ON COLUMN runner.job.after_public IS
    'A secret job whose public job is not over: not ready. Where that is accepted it becomes ready, else it ends '
    'with it.';
COMMENT ON COLUMN runner.job.not_before IS 'Start time or back-off: not claimed earlier.';
COMMENT ON COLUMN runner.job.expires_at IS 'A job that still waits then is cancelled; NULL: never.';
COMMENT ON COLUMN runner.job.avoid_host
    IS 'Until avoid_until not claimed by this host (avoid_slot NULL), or not run on this slot of it.';
COMMENT ON COLUMN runner.job.state IS
    'Written by claim, complete, complete_waiting, leave, follow_public, cancel, cancel_batch and cancel_sweep alone; '
    'new jobs are queued.';
COMMENT ON COLUMN runner.job.attempt IS 'Number of claims so far; the fencing token of every write by the claimer.';
COMMENT ON COLUMN runner.job.lease_expires_at IS
    'From the claim to the first heartbeat, its end; then infinity: it ends with runner.lease.expires_at of its host.';
COMMENT ON COLUMN runner.job.host IS 'The host that claimed it last; stays when the lease ends.';
COMMENT ON COLUMN runner.job.slot IS 'The slot that failed it last; stays when the lease ends.';
COMMENT ON COLUMN runner.job.failures IS 'Infrastructure failures, against runner.retry.max_attempts.';
COMMENT ON COLUMN runner.job.reclaims IS 'Times the lease expired, against runner.retry.max_lost_leases.';
COMMENT ON COLUMN runner.job.unanswered
    IS 'Claims of it whose answer its daemon never read, against runner.retry.max_unanswered_claims.';
COMMENT ON COLUMN runner.job.causes
    IS 'Why attempts ended without a result, oldest first: {attempt, host, slot, kind, error, at}.';
COMMENT ON COLUMN runner.job.marked_hacked IS
    'Its verdict made submission.status hacked; a mark that somebody else set is never taken back.';
COMMENT ON COLUMN runner.job.replaces IS 'The job that this one evaluates again.';
COMMENT ON COLUMN runner.job.retired_at IS 'Set: its result no longer counts, see retired_reason. Nothing is deleted.';
COMMENT ON COLUMN runner.job.retired_as
    IS 'NULL: its result counts. replaced, dropped or invalidated: it does not, see retired_reason.';
COMMENT ON COLUMN runner.job.sweep_id IS
    'The row of leaderboard.validation_sweep; no foreign key, since a database of an older KernelBot has no '
    'such table.';
COMMENT ON COLUMN runner.job.validates IS
    'The submission that the job validates, or evaluates for a final; it is no job of the submission, so it changes '
    'nothing there.';
COMMENT ON COLUMN runner.job.final_id IS 'The final that it is an evaluation of.';
COMMENT ON COLUMN runner.job.finalist IS 'The number of the finalist.';
COMMENT ON COLUMN runner.job.round IS 'The round of the final.';
COMMENT ON COLUMN runner.job.only_host IS 'The only host that claims it; NULL: any.';
COMMENT ON COLUMN runner.job.checked IS 'Whether a host has had its file to see whether it is Python (runner.take_check).';

-- The indexes that claims walk, and others of a large table, are in ../indexes.
-- The condition names the column searched for, not the state. With the state, a plan that was made when nothing ran
-- would take this index for the shortest way to any running job, and would be kept when thousands run.
CREATE INDEX job_lease_idx ON runner.job (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX job_submission_idx ON runner.job (submission_id);
CREATE UNIQUE INDEX job_open_key ON runner.job (submission_id, gpu_type, mode, secret)
    WHERE state IN ('queued', 'running');
CREATE INDEX job_replaces_idx ON runner.job (replaces) WHERE replaces IS NOT NULL;
CREATE INDEX job_finished_idx ON runner.job (host, finished_at) WHERE state = 'done';
