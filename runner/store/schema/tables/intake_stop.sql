-- Whether submissions are stopped for all frontends at once.
CREATE TABLE runner.intake_stop (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    reason text NOT NULL,
    since timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE runner.intake_stop IS 'One row: nothing may be submitted, by whatever frontend, until it is deleted.';
