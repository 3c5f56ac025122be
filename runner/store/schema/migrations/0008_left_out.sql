-- No program passes trace contexts on.
DROP FUNCTION runner.trace(bigint, text);
DROP TABLE runner.trace;
