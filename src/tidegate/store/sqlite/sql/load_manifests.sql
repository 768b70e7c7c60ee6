-- load_manifests: load what applications declare, for processes that cannot import them.

-- name: all
SELECT app, body
FROM manifest
ORDER BY app
