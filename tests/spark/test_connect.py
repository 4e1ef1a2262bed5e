"""Through Spark Connect: the client has no Java, and everything works the same."""

from __future__ import annotations

import json

from tests.spark.conftest import Lab
from tests.spark.test_clusters import BAD, GOOD, produce, run_program
from tests.spark.test_sink import committed


def test_source_sink_and_json_through_spark_connect(lab: Lab) -> None:
    source, sink = lab.topic(), lab.topic()
    produce(lab, source)
    said = json.loads(run_program("connect_job.py", lab.bootstrap, source, sink, f"{source}-dlq", str(lab.directory)))
    assert said.pop("kind").startswith("pyspark.sql.connect")
    assert said == {"schema": "struct<n:bigint>", "values": list(range(GOOD)), "rows": GOOD + 1}
    assert committed(lab, f"{source}-dlq") == sorted(f"bad {number}" for number in range(BAD))
