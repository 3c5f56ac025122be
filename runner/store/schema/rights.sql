-- PostgreSQL lets PUBLIC call every new function. Only the owner, and the roles of roles.sql, may call ours.
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA runner FROM PUBLIC;
