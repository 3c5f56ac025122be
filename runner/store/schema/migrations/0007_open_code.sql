-- Whether ranked code is public after the deadline.
ALTER TABLE runner.board ADD COLUMN open_code boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN runner.board.open_code IS 'Whether ranked code is public once the deadline has passed.';
