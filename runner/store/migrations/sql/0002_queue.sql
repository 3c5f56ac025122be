-- Schema `runner`: the queue and what belongs to it. Whatever refers to schema `leaderboard` goes when its row goes,
-- so that KernelBot's own deletes keep working.

CREATE TABLE runner.board (
    leaderboard_id integer PRIMARY KEY REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    extra jsonb,
    harness text CHECK (harness IN ('builtin', 'program'))
);
COMMENT ON TABLE runner.board IS 'What only kernel-runner knows of a leaderboard: runner.yml, and who evaluates.';

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
    CONSTRAINT job_verdict_when_done CHECK ((state = 'done') = (verdict IS NOT NULL)),
    CONSTRAINT job_lease_when_running
        CHECK ((state = 'running') = (lease_owner IS NOT NULL) AND (state = 'running') = (lease_expires_at IS NOT NULL)),
    CONSTRAINT job_started_when_running CHECK (state <> 'running' OR started_at IS NOT NULL),
    CONSTRAINT job_finished_when_over CHECK ((state IN ('done', 'cancelled')) = (finished_at IS NOT NULL))
);
COMMENT ON TABLE runner.job IS 'The queue: evaluate submission S on GPU type T in mode M (public or secret).';
COMMENT ON COLUMN runner.job.attempt IS 'Number of claims so far; the fencing token of every write by the claimer.';
COMMENT ON COLUMN runner.job.failures IS 'Infrastructure failures, against max_attempts.';
COMMENT ON COLUMN runner.job.reclaims IS 'Times the lease expired; a job that keeps killing its daemon ends.';
COMMENT ON COLUMN runner.job.not_before IS 'Back-off: not claimed earlier.';
COMMENT ON COLUMN runner.job.host IS 'The host that claimed it last; stays when the lease ends.';

-- The claim walks this per GPU type; only queued jobs are in it.
CREATE INDEX job_claim_idx ON runner.job (gpu_type, priority DESC, id) WHERE state = 'queued';
CREATE INDEX job_lease_idx ON runner.job (lease_expires_at) WHERE state = 'running';
CREATE INDEX job_submission_idx ON runner.job (submission_id);
CREATE UNIQUE INDEX job_open_key ON runner.job (submission_id, gpu_type, mode, secret)
    WHERE state IN ('queued', 'running');

CREATE TABLE runner.job_run (
    run_id integer PRIMARY KEY REFERENCES leaderboard.runs (id) ON DELETE CASCADE,
    job_id bigint NOT NULL REFERENCES runner.job (id) ON DELETE CASCADE
);
CREATE INDEX job_run_job_idx ON runner.job_run (job_id);
COMMENT ON TABLE runner.job_run IS 'Which job wrote which row of leaderboard.runs.';

CREATE TABLE runner.stale_result (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL REFERENCES runner.job (id) ON DELETE CASCADE,
    attempt integer NOT NULL,
    verdict text,
    result jsonb NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX stale_result_job_idx ON runner.stale_result (job_id);
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
    last_seen timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE runner.gpu_type (
    name text PRIMARY KEY,
    vendor text NOT NULL,
    aliases text[] NOT NULL DEFAULT '{}',
    description text NOT NULL DEFAULT '',
    synced_at timestamptz NOT NULL DEFAULT now()
);
