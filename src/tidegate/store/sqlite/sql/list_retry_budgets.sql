-- list_retry_budgets: what the retry budgets hold back; the budgets themselves are in the gates' buckets.

-- name: held
SELECT held_by, upstream, count(*)
FROM waiting
WHERE held_by <> ''
GROUP BY held_by, upstream
