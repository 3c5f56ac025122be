-- Users as a data export shows them. A name that holds an address of electronic mail is not shown.
CREATE OR REPLACE VIEW runner.dataset_users AS
SELECT u.id AS user_id,
       -- The same pattern finds ids that hold one (dataset_people in queries.sql).
       CASE WHEN u.user_name ~ '[^\s@]+@[^\s@]+\.[^\s@]+' THEN '' ELSE coalesce(u.user_name, '') END AS user_name,
       u.is_banned IS TRUE AS user_banned
FROM leaderboard.user_info u;
COMMENT ON VIEW runner.dataset_users IS 'A row per user with the name that a data export shows.';
