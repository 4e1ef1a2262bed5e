-- Streaming tables that keep state: a row comes out when the watermark has passed its end, and never changes afterwards.

CREATE STREAMING TABLE sessions COMMENT 'What users did without a pause of half an hour' AS
SELECT user, session_window.start AS started, max(at) AS ended, count(*) AS views, sum(cents) AS cents
FROM STREAM activity WATERMARK at DELAY OF INTERVAL 10 MINUTES
GROUP BY user, session_window(at, '30 minutes');

CREATE STREAMING TABLE service_minutes COMMENT 'Requests of each service in each minute' AS
SELECT
  service,
  window.start AS minute,
  count(*) AS requests,
  count_if(status >= 500) AS errors,
  sum(ms) AS ms_total,
  max(ms) AS ms_max
FROM STREAM metrics WATERMARK at DELAY OF INTERVAL 10 MINUTES
GROUP BY service, window(at, '1 minute');
