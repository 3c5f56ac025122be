-- One evaluation each of a final.
CREATE TABLE runner.final_score (
    final_id bigint,
    number integer,
    round integer,
    host text,
    score double precision NOT NULL CHECK (score > 0),
    scored_at timestamptz NOT NULL DEFAULT now(),
    p25 double precision NOT NULL CHECK (p25 > 0),
    PRIMARY KEY (final_id, number, round, host),
    FOREIGN KEY (final_id, number) REFERENCES runner.finalist (final_id, number) ON DELETE CASCADE
);
COMMENT ON TABLE runner.final_score IS 'What finals measured; seconds.';
COMMENT ON COLUMN runner.final_score.p25
    IS 'Like the score, of the lower quartile of the calls in place of their mean.';
