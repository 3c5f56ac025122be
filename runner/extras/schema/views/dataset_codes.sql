-- Which code each submission is of, with the hash and the size of its bytes.
CREATE OR REPLACE VIEW runner.dataset_codes AS
SELECT s.leaderboard_id, s.user_id, s.id AS submission_id, s.code_id,
       CASE WHEN c.old_code IS NULL THEN c.hash
           ELSE encode(sha256(convert_to(c.old_code, 'UTF8')), 'hex') END AS code_sha256,
       coalesce(octet_length(c.old_code), octet_length(c.code)) AS code_bytes
FROM leaderboard.submission s
LEFT JOIN leaderboard.code_files c ON c.id = s.code_id;
COMMENT ON VIEW runner.dataset_codes IS 'A row per submission with the hash and the bytes of its code.';
