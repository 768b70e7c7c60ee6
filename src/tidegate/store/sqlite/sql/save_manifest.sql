-- save_manifest: keep what an application declares.

-- name: save
-- 1 application, 2 manifest as JSON, 3 now
INSERT INTO manifest (app, body, saved_at)
VALUES (?, ?, ?)
ON CONFLICT (app) DO UPDATE
SET
    body = excluded.body,
    saved_at = excluded.saved_at
