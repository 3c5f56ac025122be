-- Finals: the best submissions of a ranking, and controls, evaluated again in rounds.
CREATE TABLE runner.final_sweep (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    leaderboard_id integer NOT NULL REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    gpu_type text NOT NULL,
    rounds integer NOT NULL CHECK (rounds > 0),
    hosts text[] NOT NULL,
    shuffle uuid NOT NULL DEFAULT gen_random_uuid(),
    status text NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'completed', 'cancelled')),
    ordered_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    CONSTRAINT final_sweep_ended CHECK ((status = 'running') = (ended_at IS NULL))
);
CREATE UNIQUE INDEX final_sweep_running_key ON runner.final_sweep (leaderboard_id, gpu_type) WHERE status = 'running';
CREATE INDEX final_sweep_latest_idx ON runner.final_sweep (leaderboard_id, gpu_type, id);
COMMENT ON TABLE runner.final_sweep IS 'Finals of leaderboards, which runner.final orders.';
COMMENT ON COLUMN runner.final_sweep.rounds IS 'At most; a final ends before, once its order is clear.';
COMMENT ON COLUMN runner.final_sweep.hosts IS 'Each evaluates every finalist once in each round.';
COMMENT ON COLUMN runner.final_sweep.shuffle IS 'What the order of each round on each host is drawn from.';
