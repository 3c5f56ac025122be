-- Users as a data export shows them. A name that is an address of electronic mail is not shown.
CREATE OR REPLACE VIEW runner.dataset_users AS
SELECT u.id AS user_id,
       CASE WHEN u.user_name ~ '^\S+@\S+\.\S+$' THEN '' ELSE coalesce(u.user_name, '') END AS user_name
FROM leaderboard.user_info u;
COMMENT ON VIEW runner.dataset_users IS 'A row per user with the name that a data export shows.';
