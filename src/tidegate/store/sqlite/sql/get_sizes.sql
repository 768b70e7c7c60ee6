-- get_sizes: the size of the file and of each of its tables, with their indexes. `dbstat` reads pages one by one, so the
-- walk through a large table is stopped early, and its size is estimated from the part that was read.

-- name: file
SELECT c.page_count, f.freelist_count, p.page_size
FROM pragma_page_count AS c, pragma_freelist_count AS f, pragma_page_size AS p

-- name: trees
-- The tables and indexes: name, table, and whether inner pages hold rows too.
SELECT s.name, s.tbl_name, t.wr
FROM sqlite_schema AS s
JOIN pragma_table_list AS t ON t.name = s.tbl_name AND t.schema = 'main'
WHERE s.rootpage > 0
ORDER BY s.tbl_name, s.name

-- name: pages
-- The pages of one table or index in the order of its tree.
-- 1 name
SELECT path, pagetype, ncell, pgsize
FROM dbstat
WHERE name = ?1
