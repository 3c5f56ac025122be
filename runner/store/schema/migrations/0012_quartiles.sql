-- Finals compare lower quartiles.
ALTER TABLE runner.final_score ADD COLUMN p25 double precision CHECK (p25 > 0);
UPDATE runner.final_score SET p25 = score;
ALTER TABLE runner.final_score ALTER COLUMN p25 SET NOT NULL;
COMMENT ON COLUMN runner.final_score.p25 IS 'Like the score, of the lower quartile of the calls in place of their mean.';
