-- Answers 'ready' last, or what Handfast would miss here; on MySQL and on MariaDB. The health check asks as the
-- application's account.
-- Error 1401 without XA_RECOVER_ADMIN on MySQL: the client stops here, and nothing is ready.
XA RECOVER;
SELECT IF(trouble = '', 'ready', trouble)
FROM (SELECT CONCAT_WS(', ',
    IF(@@innodb_flush_log_at_trx_commit = 1, NULL, 'innodb_flush_log_at_trx_commit is not 1'),
    IF(@@log_bin = 0 OR @@sync_binlog = 1, NULL, 'sync_binlog is not 1'),
    IF(@@read_only, 'the server is read-only', NULL)) AS trouble) AS found;
