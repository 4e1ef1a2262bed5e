"""What Spark finds: `format("ottla")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pyspark_ottla.kernels import compile_ahead
from pyspark_ottla.options import OptionError, batch_options, stream_options
from pyspark_ottla.schema import check_schema, source_schema
from pyspark_ottla.workers import settle

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Topics of Ottla, or of any Kafka, as tables and streams. No jar is needed.

    df = spark.read.format("ottla").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "t").load()

    Columns: key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,
    timestampType int, and with includeHeaders=true headers array<struct<key:string,value:binary>>. A schema with fewer
    of these columns, `.schema("value binary, offset bigint")`, reads only those.

    Options are those of Spark's Kafka source; see docs/guides/spark.md for all of them.
    """

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        include_headers = str(self.options.get("includeheaders", "false")).lower() == "true"
        return source_schema(include_headers=include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = batch_options(self.options)
        check_schema(schema, include_headers=options.include_headers)
        if options.pushdown:
            # Spark refuses every read of a reader that takes filters unless its own setting allows them.
            from pyspark_ottla.pushdown import FilteringReader

            return FilteringReader(options, schema)
        from pyspark_ottla.reader import BatchReader

        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pyspark_ottla.stream import StreamReader

        options = stream_options(self.options)
        check_schema(schema, include_headers=options.include_headers)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_ottla.sink_options import Delivery, check_sink_schema, sink_options
        from pyspark_ottla.writer import BatchWriter

        options = sink_options(self.options, Delivery.AT_LEAST_ONCE)
        check_sink_schema(schema, options.topic)
        if overwrite:
            raise OptionError("a topic cannot be overwritten: use mode append")
        compile_ahead()
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from pyspark_ottla.sink_options import Delivery, check_sink_schema, sink_options
        from pyspark_ottla.stream_writer import StreamWriter

        options = sink_options(self.options, Delivery.EXACTLY_ONCE)
        check_sink_schema(schema, options.topic)
        compile_ahead()
        settle()
        return StreamWriter(options)
