-- What the Discord frontend sends beside gateway.sql; the same form as queries.sql.

