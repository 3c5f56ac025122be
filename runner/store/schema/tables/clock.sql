-- Start-time fair queueing per class (GPU type, priority): a job's turn is its start tag (Goyal, Vin, Cheng: Start-time
-- Fair Queueing, 1996), given when the job is stored (runner.take_turns). Within a class the lowest turn is served
-- first; among equals the oldest job. A row that is written often has `seq` in its key and grows it with each write,
-- and readers take the highest. So the index leads to the newest version first, also while a snapshot keeps all former
-- ones.
CREATE TABLE runner.clock (
    gpu_type text NOT NULL,
    priority integer NOT NULL,
    seq bigint NOT NULL DEFAULT 0,
    turn bigint NOT NULL,
    floor bigint NOT NULL DEFAULT 0,
    next_floor bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (gpu_type, priority, seq)
) WITH (fillfactor = 50);
COMMENT ON TABLE runner.clock
    IS 'Virtual time of a class: the highest turn claimed so far. May lag by the claims in flight.';
COMMENT ON COLUMN runner.clock.seq IS 'Grows with each write; the row with the highest counts.';
COMMENT ON COLUMN runner.clock.floor
    IS 'No job of the class waits before this turn: claims begin there. See runner.reclaim.';
COMMENT ON COLUMN runner.clock.next_floor IS 'The turn when the floor was last moved.';
