-- Whose batches of module evaluations. KernelBot's tables know nothing of them.
CREATE TABLE runner.batch_owner (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    login text NOT NULL,
    user_id text NOT NULL,
    max_open_items bigint CONSTRAINT batch_owner_max_open_items CHECK (max_open_items > 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (login, user_id)
);
COMMENT ON TABLE runner.batch_owner IS 'Whose batches: a login of the database, and the user it acts for.';
COMMENT ON COLUMN runner.batch_owner.max_open_items IS 'How many items may wait or run; NULL: any number.';
