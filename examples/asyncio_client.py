"""A broker and an asyncio client in one program: `python examples/asyncio_client.py`."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

import ottla


async def main() -> None:
    async with ottla.Server(config={"num.partitions": 1}) as server:
        async with AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers) as producer:
            for number in range(3):
                await producer.send_and_wait("greetings", f"hello {number}".encode())
        consumer = AIOKafkaConsumer(bootstrap_servers=server.bootstrap_servers)
        await consumer.start()
        try:
            consumer.assign([TopicPartition("greetings", 0)])
            await consumer.seek_to_beginning()
            for _ in range(3):
                message = await consumer.getone()
                print(f"offset {message.offset}: {message.value.decode()}")
        finally:
            await consumer.stop()


if __name__ == "__main__":
    asyncio.run(main())
