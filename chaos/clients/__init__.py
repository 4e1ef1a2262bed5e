"""Clients of a chaos run: librdkafka's, each in a thread of its own. They record what they do and judge nothing."""
