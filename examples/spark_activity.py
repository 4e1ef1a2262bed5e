"""Website activity through Spark, exactly once: views come in, visits of pages go out, and every view is counted.

    pip install 'ottla[spark]'
    python spark_activity.py

It starts a broker and a local Spark, writes page views to a topic, and runs a stream over them twice: the second run
goes on where the first one stopped. What comes out goes to another topic in transactions. In the end it is added up and
compared with what was written.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from typing import TYPE_CHECKING

import ottla
from ottla import spark as ottla_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGES = ("/", "/books", "/books/1984", "/cart", "/help")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--views", type=int, default=5_000, help="views in each of two rounds (%(default)s)")
    views = parser.parse_args().views
    chosen = random.Random(7)
    written: Counter[str] = Counter()
    with ottla.Server(process=True, config={"num.partitions": 4}) as server, tempfile.TemporaryDirectory() as directory:
        spark = ottla_spark.session("activity", master="local[2]")
        spark.sparkContext.setLogLevel("ERROR")
        spark.streams.addListener(ottla_spark.LagListener())
        for _ in range(2):
            round_of_views = [(f"user-{chosen.randrange(300)}", chosen.choice(PAGES)) for _ in range(views)]
            written.update(page for _, page in round_of_views)
            write_views(spark, server.bootstrap_servers, round_of_views)
            count_visits(server.bootstrap_servers, directory)
        counted = total_visits(server.bootstrap_servers)
        spark.stop()
    for page in PAGES:
        print(f"{page:12} {written[page]:6} views, {counted[page]:6} counted")
    if counted != written:
        raise SystemExit("the counts differ")
    print("Every view was counted once.")


def write_views(spark: SparkSession, bootstrap: str, views: list[tuple[str, str]]) -> None:
    """Keyed by user, as a web site would write them."""
    rows = [(user, json.dumps({"page": page})) for user, page in views]
    frame = spark.createDataFrame(rows, "key string, value string")
    frame.write.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("topic", "views").mode(
        "append"
    ).save()


def count_visits(bootstrap: str, directory: str) -> None:
    """What is new in `views` goes to `visits`, one row for each view, keyed by page."""
    pages = ottla_spark.stream("views", bootstrap=bootstrap, startingOffsets="earliest").selectExpr(
        "get_json_object(cast(value as string), '$.page') as key", "'1' as value"
    )
    query = (
        pages.writeStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "visits")
        .option("checkpointLocation", directory)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def total_visits(bootstrap: str) -> Counter[str]:
    """Committed visits, added up."""
    visits = ottla_spark.read("visits", bootstrap=bootstrap, **{"isolation.level": "read_committed"})
    pages = visits.selectExpr("cast(key as string) as page").groupBy("page").count()
    return Counter({row["page"]: row["count"] for row in pages.collect()})


if __name__ == "__main__":
    main()
