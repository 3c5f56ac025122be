-- What `migrate` compares, to leave functions and views alone that are as they should be.
CREATE TABLE runner.applied (
    files text NOT NULL,
    objects text NOT NULL,
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row)
);
COMMENT ON TABLE runner.applied IS
    'Hashes of the schema files that migrate applied last, and of the functions and views that came of them.';
