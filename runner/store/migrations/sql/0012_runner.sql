-- Schema `runner`: the tables of the queue. Rows that refer to schema `leaderboard` go when the row they refer to goes,
-- so that KernelBot's own deletes keep working. Functions and views lie in `runner/store/schema`.

CREATE TABLE runner.board (
    leaderboard_id integer PRIMARY KEY REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    extra jsonb,
    harness text CHECK (harness IN ('builtin', 'program')),
    -- From the least to the most trusted: claimed, audited_host, measured, audited. No leaderboard can demand
    -- audited_host: the judge's clock has seen the host's work and the device's as one span, so such a time says less
    -- about the device.
    timing text NOT NULL DEFAULT 'claimed'
        CONSTRAINT board_timing CHECK (timing IN ('claimed', 'measured', 'audited')),
    tolerance double precision NOT NULL DEFAULT 0.1
        CONSTRAINT board_tolerance CHECK (tolerance BETWEEN 0.01 AND 0.5),
    ranked text[] NOT NULL GENERATED ALWAYS AS (CASE timing
        WHEN 'claimed' THEN ARRAY['claimed', 'audited_host', 'measured', 'audited']
        WHEN 'measured' THEN ARRAY['measured', 'audited']
        ELSE ARRAY['audited'] END) STORED
);
COMMENT ON TABLE runner.board IS 'What only kernel-runner knows of a leaderboard: runner.yml, and who evaluates.';
COMMENT ON COLUMN runner.board.timing IS 'The assurance that a time needs to rank.';
COMMENT ON COLUMN runner.board.tolerance IS
    'The judge bounds a claimed time to within this part of it, or its own measure counts.';
COMMENT ON COLUMN runner.board.ranked IS 'The assurances that are at least `timing`.';

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
    submission_id integer NOT NULL REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    gpu_type text NOT NULL,
    mode text NOT NULL CHECK (mode IN ('test', 'benchmark', 'profile', 'leaderboard', 'private')),
    secret boolean NOT NULL,
    priority integer NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'done', 'cancelled')),
    verdict text CHECK (verdict IN (
        'accepted', 'wrong_answer', 'compile_error', 'runtime_error', 'time_limit', 'memory_limit', 'output_limit',
        'rejected', 'invalid', 'internal_error'
    )),
    attempt integer NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,
    reclaims integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 3 CHECK (max_attempts > 0),
    lease_owner text,
    lease_expires_at timestamptz,
    cancel_requested boolean NOT NULL DEFAULT false,
    not_before timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    finished_at timestamptz,
    host text,
    progress jsonb,
    error text,
    report jsonb,
    build_ms bigint,
    eval_ms bigint,
    user_id text NOT NULL,
    turn bigint NOT NULL DEFAULT 0,
    causes jsonb NOT NULL DEFAULT '[]',
    slot text,
    avoid_host text,
    avoid_slot text,
    avoid_until timestamptz,
    reserved_by text,
    reserved_until timestamptz,
    replaces bigint REFERENCES runner.job (id) ON DELETE SET NULL,
    retired_at timestamptz,
    retired_reason text,
    retired_as text CHECK (retired_as IN ('replaced', 'dropped', 'invalidated')),
    marked_hacked boolean NOT NULL DEFAULT false,
    enqueued boolean NOT NULL DEFAULT false,
    CONSTRAINT job_verdict_when_done CHECK ((state = 'done') = (verdict IS NOT NULL)),
    CONSTRAINT job_lease_when_running
        CHECK ((state = 'running') = (lease_owner IS NOT NULL) AND (state = 'running') = (lease_expires_at IS NOT NULL)),
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
COMMENT ON TABLE runner.job IS 'The queue: evaluate submission S on GPU type T in mode M (public or secret).';
COMMENT ON COLUMN runner.job.attempt IS 'Number of claims so far; the fencing token of every write by the claimer.';
COMMENT ON COLUMN runner.job.failures IS 'Infrastructure failures, against max_attempts.';
COMMENT ON COLUMN runner.job.reclaims IS 'Times the lease expired; a job that keeps killing its daemon ends.';
COMMENT ON COLUMN runner.job.not_before IS 'Back-off: not claimed earlier.';
COMMENT ON COLUMN runner.job.host IS 'The host that claimed it last; stays when the lease ends.';
COMMENT ON COLUMN runner.job.turn IS 'Start tag of fair queueing within (gpu_type, priority); kept when the job is queued again.';
COMMENT ON COLUMN runner.job.causes IS 'Why attempts ended without a result, oldest first: {attempt, host, slot, kind, error, at}.';
COMMENT ON COLUMN runner.job.slot IS 'The slot that failed it last; stays when the lease ends.';
COMMENT ON COLUMN runner.job.avoid_host IS 'Until avoid_until not claimed by this host (avoid_slot NULL), or not run on this slot of it.';
COMMENT ON COLUMN runner.job.reserved_by IS 'Until reserved_until this host keeps devices free for it; anybody may claim it sooner.';
COMMENT ON COLUMN runner.job.replaces IS 'The job that this one evaluates again.';
COMMENT ON COLUMN runner.job.retired_at IS 'Set: its result no longer counts, see retired_reason. Nothing is deleted.';
COMMENT ON COLUMN runner.job.retired_as IS 'NULL: its result counts. replaced, dropped or invalidated: it does not, see retired_reason.';
COMMENT ON COLUMN runner.job.marked_hacked IS
    'Its verdict made submission.status hacked; a mark that somebody else set is never taken back.';
COMMENT ON COLUMN runner.job.enqueued IS
    'Made by runner.enqueue, for a submission of somebody else, who may write results of it too.';

-- A claim walks this index per GPU type; only queued jobs are in it.
CREATE INDEX job_claim_idx ON runner.job (gpu_type, priority DESC, turn, id) WHERE state = 'queued';
-- The queue without ranked jobs. It is ordered by the negative priority, so that neither this index nor job_claim_idx
-- is ever a way to what the other one is for: both are ordered, and a plan is kept whatever they hold later.
CREATE INDEX job_unranked_idx ON runner.job (gpu_type, (- priority), turn, id)
    WHERE state = 'queued' AND mode IN ('test', 'benchmark', 'profile');
-- The condition names the column searched for, not the state. With the state, a plan that was made when nothing ran
-- would take this index for the shortest way to any running job, and would be kept when thousands run.
CREATE INDEX job_lease_idx ON runner.job (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX job_reserved_idx ON runner.job (reserved_by) WHERE state = 'queued' AND reserved_by IS NOT NULL;
CREATE INDEX job_submission_idx ON runner.job (submission_id);
CREATE UNIQUE INDEX job_open_key ON runner.job (submission_id, gpu_type, mode, secret)
    WHERE state IN ('queued', 'running');
CREATE INDEX job_replaces_idx ON runner.job (replaces) WHERE replaces IS NOT NULL;
CREATE INDEX job_finished_idx ON runner.job (host, finished_at) WHERE state = 'done';

-- Start-time fair queueing per class (GPU type, priority): a job's turn is its start tag (Goyal, Vin, Cheng: Start-time
-- Fair Queueing, 1996). Within a class the lowest turn is served first; among equals the oldest job.
CREATE TABLE runner.clock (
    gpu_type text NOT NULL,
    priority integer NOT NULL,
    turn bigint NOT NULL,
    since_id bigint NOT NULL DEFAULT 0,
    rounds integer NOT NULL DEFAULT 0,
    PRIMARY KEY (gpu_type, priority)
) WITH (fillfactor = 50);
COMMENT ON TABLE runner.clock IS 'Virtual time of a class: the highest turn claimed so far. May lag by the claims in flight.';
COMMENT ON COLUMN runner.clock.since_id IS 'Jobs above it came since the turn, or the last round of newcomers in it, began.';
COMMENT ON COLUMN runner.clock.rounds IS 'Rounds of newcomers since the turn began; from the second on, others are served too.';

CREATE TABLE runner.share (
    user_id text NOT NULL,
    gpu_type text NOT NULL,
    priority integer NOT NULL,
    next_turn bigint NOT NULL,
    PRIMARY KEY (user_id, gpu_type, priority)
);
COMMENT ON TABLE runner.share IS 'The turn of a user''s next submission in a class, unless the clock is further. A row behind its clock says nothing.';

CREATE TABLE runner.job_run (
    run_id integer PRIMARY KEY REFERENCES leaderboard.runs (id) ON DELETE CASCADE,
    job_id bigint NOT NULL REFERENCES runner.job (id) ON DELETE CASCADE
);
CREATE INDEX job_run_job_idx ON runner.job_run (job_id);
COMMENT ON TABLE runner.job_run IS 'Which job wrote which row of leaderboard.runs.';

-- Rows are moved here whole. So every reader of leaderboard.runs, KernelBot's own tools too, sees only what counts.
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

CREATE TABLE runner.stale_result (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL REFERENCES runner.job (id) ON DELETE CASCADE,
    attempt integer NOT NULL,
    verdict text,
    result jsonb NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX stale_result_job_idx ON runner.stale_result (job_id);
CREATE INDEX stale_result_age_idx ON runner.stale_result (received_at);
COMMENT ON TABLE runner.stale_result IS 'Results that came after their attempt was over: evidence, never a verdict.';

CREATE TABLE runner.artifact (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL REFERENCES runner.job (id) ON DELETE CASCADE,
    name text NOT NULL,
    media_type text NOT NULL,
    data bytea NOT NULL CHECK (octet_length(data) <= 67108864),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL DEFAULT now() + interval '30 days',
    UNIQUE (job_id, name)
);
CREATE INDEX artifact_expiry_idx ON runner.artifact (expires_at);

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

CREATE TABLE runner.idempotency (
    user_id text NOT NULL,
    key text NOT NULL,
    payload_hash text NOT NULL,
    submission_id integer NOT NULL REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, key)
);
CREATE INDEX idempotency_submission_idx ON runner.idempotency (submission_id);

CREATE TABLE runner.host (
    name text PRIMARY KEY,
    version text NOT NULL,
    slots jsonb NOT NULL,
    draining boolean NOT NULL DEFAULT false,
    registered_at timestamptz NOT NULL DEFAULT now(),
    last_seen timestamptz NOT NULL DEFAULT now(),
    instance text,
    gpu_types text[] NOT NULL DEFAULT '{}',
    stopped_at timestamptz,
    drain_reason text
);
COMMENT ON COLUMN runner.host.instance IS 'Identity of the daemon''s state directory; two daemons must not share a name.';
COMMENT ON COLUMN runner.host.gpu_types IS 'Every name, aliases included, a job may use for one of its slots.';
COMMENT ON COLUMN runner.host.draining IS 'Finishes what runs and claims nothing, until undrained; survives restarts.';
COMMENT ON COLUMN runner.host.stopped_at IS 'Set when the daemon said goodbye.';

CREATE TABLE runner.gpu_type (
    name text PRIMARY KEY,
    vendor text NOT NULL,
    aliases text[] NOT NULL DEFAULT '{}',
    description text NOT NULL DEFAULT '',
    synced_at timestamptz NOT NULL DEFAULT now()
);

CREATE TYPE runner.evaluation AS (
    submission_id integer,
    leaderboard text,
    user_id text,
    gpu_type text,
    mode text,
    twins bigint[],
    counting bigint[],
    obstacle text
);
COMMENT ON TYPE runner.evaluation IS
    'What a submission has on a GPU type in a mode: its latest finished jobs, those that count, why it cannot run again.';
