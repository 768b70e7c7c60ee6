-- load_manifests: what applications declare, for those who cannot import them.

-- name: all
SELECT app, body
FROM /*schema*/manifest
ORDER BY app
