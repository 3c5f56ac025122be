-- Where a user stands in a class (GPU type, priority).
CREATE TABLE runner.share (
    user_id text NOT NULL,
    gpu_type text NOT NULL,
    priority integer NOT NULL,
    next_turn bigint NOT NULL,
    PRIMARY KEY (user_id, gpu_type, priority)
);
COMMENT ON TABLE runner.share
    IS 'The turn of a user''s next submission in a class, unless the clock is further. A row behind its clock says '
        'nothing.';
