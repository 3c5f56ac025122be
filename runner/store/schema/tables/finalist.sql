-- Who takes part in a final.
CREATE TABLE runner.finalist (
    final_id bigint REFERENCES runner.final_sweep (id) ON DELETE CASCADE,
    number integer,
    submission_id integer NOT NULL REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    fault text,
    PRIMARY KEY (final_id, number)
);
CREATE INDEX finalist_submission_idx ON runner.finalist (submission_id);
COMMENT ON TABLE runner.finalist IS 'The submissions of a final, and its control.';
COMMENT ON COLUMN runner.finalist.number IS
    'Its place in the ranking before the final; 0: the control, which is the first once more under another name.';
COMMENT ON COLUMN runner.finalist.fault IS 'The verdict that put it out, and the round; NULL: none.';
