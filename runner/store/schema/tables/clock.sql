-- Start-time fair queueing per class (GPU type, priority): a job's turn is its start tag (Goyal, Vin, Cheng: Start-time
-- Fair Queueing, 1996). Within a class the lowest turn is served first; among equals the oldest job.
CREATE TABLE runner.clock (
    gpu_type text NOT NULL,
    priority integer NOT NULL,
    seq bigint NOT NULL DEFAULT 0,
    turn bigint NOT NULL,
    since_id bigint NOT NULL DEFAULT 0,
    rounds integer NOT NULL DEFAULT 0,
    PRIMARY KEY (gpu_type, priority, seq)
) WITH (fillfactor = 50);
COMMENT ON TABLE runner.clock IS 'Virtual time of a class: the highest turn claimed so far. May lag by the claims in flight.';
COMMENT ON COLUMN runner.clock.seq IS 'Grows with each write; the row with the highest counts.';
COMMENT ON COLUMN runner.clock.since_id IS 'Jobs above it came since the turn, or the last round of newcomers in it, began.';
COMMENT ON COLUMN runner.clock.rounds IS 'Rounds of newcomers since the turn began; from the second on, others are served too.';
