-- list_retry_budgets: count the tasks that retry budgets hold back. The budgets themselves are in the gates' buckets.

-- name: held
SELECT held_by, upstream, count(*)
FROM /*schema*/waiting
WHERE held_by <> ''
GROUP BY held_by, upstream
