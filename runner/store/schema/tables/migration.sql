-- The newest version that `migrate` has applied: one row.
CREATE TABLE runner.migration (
    version_num text PRIMARY KEY
);
