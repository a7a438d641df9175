-- Answers 'ready', or what Handfast would miss here. The health check asks as the application's role.
SELECT CASE WHEN trouble = '' THEN 'ready' ELSE trouble END
FROM (SELECT concat_ws(', ',
    CASE WHEN current_setting('max_prepared_transactions')::int = 0 THEN 'max_prepared_transactions is 0' END,
    CASE WHEN NOT current_setting('fsync')::bool THEN 'fsync is off' END,
    CASE WHEN NOT current_setting('full_page_writes')::bool THEN 'full_page_writes is off' END,
    CASE WHEN pg_is_in_recovery() THEN 'the server is a standby' END) AS trouble) AS found;
