-- runner.counting_score alone says which scores count.
DROP VIEW runner.valid_score;
