-- Start-time fair queueing per class (GPU type, priority): a job's turn is its start tag (Goyal, Vin, Cheng: Start-time
-- Fair Queueing, 1996), given when the job is stored (runner.take_turns). Within a class the lowest turn is served first;
-- among equals the oldest job.
CREATE TABLE runner.clock (
    gpu_type text NOT NULL,
    priority integer NOT NULL,
    seq bigint NOT NULL DEFAULT 0,
    turn bigint NOT NULL,
    PRIMARY KEY (gpu_type, priority, seq)
) WITH (fillfactor = 50);
COMMENT ON TABLE runner.clock IS 'Virtual time of a class: the highest turn claimed so far. May lag by the claims in flight.';
COMMENT ON COLUMN runner.clock.seq IS 'Grows with each write; the row with the highest counts.';
