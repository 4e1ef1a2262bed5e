"""Config keys by Kafka's names: what they mean, which values they take, and what they come to for one topic or broker.

The tables declare keys, `resolve` turns text into typed values, `describe` says where a value comes from, `alter` says
which changes are allowed. Texts come in from files, flags and metadata records; nothing here reads any of them.
"""
