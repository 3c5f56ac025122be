-- What only kernel-runner knows of a leaderboard: runner.yml, who evaluates, and what a time needs to rank.
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
        ELSE ARRAY['audited'] END) STORED,
    max_open_jobs integer CONSTRAINT board_max_open_jobs CHECK (max_open_jobs > 0),
    paused text,
    paused_since timestamptz,
    open_code boolean NOT NULL DEFAULT true
);
COMMENT ON TABLE runner.board IS 'What only kernel-runner knows of a leaderboard: runner.yml, and who evaluates.';
COMMENT ON COLUMN runner.board.timing IS 'The assurance that a time needs to rank.';
COMMENT ON COLUMN runner.board.tolerance IS
    'The judge bounds a claimed time to within this part of it, or its own measure counts.';
COMMENT ON COLUMN runner.board.ranked IS 'The assurances that are at least `timing`.';
COMMENT ON COLUMN runner.board.max_open_jobs
    IS 'How many jobs of a user may wait or run on this leaderboard; NULL: any number.';
COMMENT ON COLUMN runner.board.paused IS 'Why no job of the leaderboard is claimed; NULL: jobs are claimed.';
COMMENT ON COLUMN runner.board.open_code IS 'Whether ranked code is public once the deadline has passed.';
