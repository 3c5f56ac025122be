-- Functions compare these with session_user, which SET ROLE does not change.
ALTER TABLE runner.host ADD login text;
COMMENT ON COLUMN runner.host.login IS
    'The login that may act for this host; NULL: the next that registers it. Only the owner and runner.move_host change it.';
ALTER TABLE runner.gpu_type ADD login text;
COMMENT ON COLUMN runner.gpu_type.login IS 'The daemon''s login that published it; NULL: the database''s owner did.';

-- Its result has more columns.
DROP FUNCTION IF EXISTS runner.reap(interval, integer);

CREATE TABLE runner.applied (
    files text NOT NULL,
    objects text NOT NULL
);
COMMENT ON TABLE runner.applied IS
    'Hashes of the schema files that migrate applied last, and of the functions and views that came of them.';
