-- What clients of batches send.

-- name: submit_batch
-- Stores items of a batch; a repeated key is no second item, so a repetition is harmless.
SELECT key, item_id, batch_id, state FROM runner.submit_batch(
    items => %(items)s::jsonb, gpu_type => %(gpu_type)s::text, batch => %(batch)s::text, user_id => %(user_id)s::text,
    settings => %(settings)s::jsonb, priority => %(priority)s::integer, group_size => %(group_size)s::integer,
    reuse => %(reuse)s::boolean, expires_at => %(expires_at)s::timestamptz, keep => %(keep)s::interval)

-- name: batch_results
-- The results of a batch after a number, in order.
SELECT key, seq, state, verdict, attempt, host, reused_from, created_at, finished_at, result
FROM runner.batch_results(batch => %(batch)s::text, after => %(after)s::bigint, user_id => %(user_id)s::text)

-- name: results_of_keys
-- The items of these keys, with their results where there are any.
SELECT key, seq, state, verdict, attempt, host, reused_from, created_at, finished_at, result
FROM runner.batch_results(keys => %(keys)s::text[], user_id => %(user_id)s::text)
