-- Most drivers read no infinite times.
UPDATE runner.host_key SET revoked_from = '0001-01-02Z' WHERE revoked_from < '0001-01-02Z';
