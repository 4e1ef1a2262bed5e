-- For those who ask about whole days: computed anew from the table in every run.
CREATE MATERIALIZED VIEW days AS
SELECT day, page, count(*) AS views, count(DISTINCT user) AS users, sum(cents) AS cents
FROM activity
GROUP BY day, page;
