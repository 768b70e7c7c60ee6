-- save_manifest: store what an application declares.

-- name: save
-- 1 at, 2 application, 3 manifest as JSON
INSERT INTO manifest (app, body, saved_at)
VALUES (?2, ?3, ?1)
ON CONFLICT (app) DO UPDATE
SET
    body = excluded.body,
    saved_at = excluded.saved_at
