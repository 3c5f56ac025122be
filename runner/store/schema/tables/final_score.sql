-- One evaluation each of a final.
CREATE TABLE runner.final_score (
    final_id bigint,
    number integer,
    round integer,
    host text,
    score double precision NOT NULL CHECK (score > 0),
    scored_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (final_id, number, round, host),
    FOREIGN KEY (final_id, number) REFERENCES runner.finalist (final_id, number) ON DELETE CASCADE
);
COMMENT ON TABLE runner.final_score IS 'What finals measured; seconds.';
