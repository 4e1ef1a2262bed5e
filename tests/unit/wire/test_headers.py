"""The bytes before the messages, compared with kio's for every api and version."""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from ottla.model.errors import MalformedMessageError
from ottla.wire.headers import (
    RequestHeader,
    encode_request,
    encode_response,
    parse_request_header,
    parse_response_header,
    request_header,
    response_header,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.create_topics import CreatableTopic

ALL_VERSIONS = [(key, version) for key, name in api_key_map.items() for version in schema_name_map[name]]


def header_class(api_key: int, version: int, kind: str) -> Any:
    module = importlib.import_module(f"kio.schema.{api_key_map[api_key]}.v{version}.{kind}")
    payload = next(
        value
        for name, value in vars(module).items()
        if name.lower().endswith(kind) and hasattr(value, "__header_schema__")
    )
    return payload.__header_schema__


def test_every_api_and_version_has_the_request_header_that_clients_send() -> None:
    for api_key, version in ALL_VERSIONS:
        header = header_class(api_key, version, "request")
        written = io.BytesIO()
        entity_writer(header)(
            written,
            header(request_api_key=api_key, request_api_version=version, correlation_id=7, client_id="clïent"),
        )
        data = written.getvalue()
        assert request_header(api_key, version, 7, "clïent") == data
        assert parse_request_header(data + b"body") == RequestHeader(api_key, version, 7, "clïent", len(data))


def test_every_api_and_version_has_the_response_header_that_clients_expect() -> None:
    for api_key, version in ALL_VERSIONS:
        data = response_header(api_key, version, -3)
        header, size = entity_reader(header_class(api_key, version, "response"))(data, 0)
        assert (header.correlation_id, size) == (-3, len(data))
        assert parse_response_header(api_key, version, data + b"body") == (-3, len(data))


def test_a_client_need_not_say_its_name() -> None:
    assert parse_request_header(request_header(3, 13, 1, None)).client_id is None
    assert parse_request_header(request_header(3, 13, 1, "")).client_id == ""


def test_the_header_is_found_inside_a_larger_buffer() -> None:
    data = request_header(3, 13, 1, "me")
    header = parse_request_header(memoryview(bytearray(b"before" + data)), 6)
    assert header == RequestHeader(3, 13, 1, "me", 6 + len(data))


def test_tags_in_a_header_are_skipped() -> None:
    data = request_header(3, 13, 1, None)[:-1] + bytes.fromhex("02 00 02 6162 05 00")
    assert parse_request_header(data + b"body").body_position == len(data)
    assert parse_response_header(3, 13, bytes.fromhex("00000001 01 00 01 ff") + b"body") == (1, 8)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\n", id="not kafka"),
        pytest.param(b"", id="nothing"),
        pytest.param(request_header(3, 13, 1, "client")[:9], id="cut in the fixed part"),
        pytest.param(request_header(3, 8, 1, "client")[:12], id="cut in the name"),
        pytest.param(request_header(3, 13, 1, "client")[:-1], id="no tags"),
        pytest.param(request_header(3, 13, 1, None)[:-1] + b"\x01\x00\x7f", id="a tag longer than the frame"),
        pytest.param(bytes.fromhex("0003 0008 00000001 0001 ff"), id="a name that is not UTF-8"),
    ],
)
def test_what_is_no_header_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        parse_request_header(data)


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\1\0\x09"])
def test_what_is_no_response_header_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        parse_response_header(3, 13, data)


def test_a_message_goes_out_with_its_header() -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="b")
    assert encode_request(request, 3, 5, None) == bytes.fromhex("0012 0003 00000005 ffff 00 02 61 02 62 00")
    response = ApiVersionsResponse(api_keys=[])
    assert encode_response(response, 3, 5) == bytes.fromhex("00000005 0000 01 00000000 00")


def test_a_part_of_a_message_has_no_header() -> None:
    with pytest.raises(TypeError, match="neither a request nor a response"):
        encode_request(CreatableTopic(name="t", num_partitions=1, replication_factor=1), 5, 1, None)
