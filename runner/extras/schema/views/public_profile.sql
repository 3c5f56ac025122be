-- The files of public profile runs. Those of other runs stay with operators: they hold what secret runs left. A barrier:
-- else conditions of who reads it may be asked of all files, and say in errors what is in them.
CREATE OR REPLACE VIEW runner.public_profile WITH (security_barrier) AS
SELECT j.submission_id, j.gpu_type, a.name, a.media_type, a.data
FROM runner.job j
JOIN runner.artifact a ON a.job_id = j.id
WHERE j.mode = 'profile' AND NOT j.secret AND j.retired_at IS NULL;
COMMENT ON VIEW runner.public_profile IS 'Files of profile runs, as their author may have them.';
