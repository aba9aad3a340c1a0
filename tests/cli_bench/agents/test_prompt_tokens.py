from pathlib import Path

import pytest

from memra.cli_bench.agents.chat_stream import Endpoint
from memra.cli_bench.agents.prompt_tokens import FileTokens, SeenPrompts, common_length, find_server_tokens
from tests.cli_bench.agents.chat_server import chat_server

BODY = {"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi <|im_end|>"}]}


@pytest.mark.parametrize("length", [0, 1, 2, 7, 8, 100])
def test_the_common_length_is_that_of_the_shared_beginning(length: int):
    beginning = list(range(length))
    assert common_length([*beginning, -1, 5], [*beginning, -2, 5, 6]) == length
    assert common_length(beginning, beginning) == length
    assert common_length(beginning, [*beginning, 1]) == length


def test_the_longest_known_beginning_wins():
    seen = SeenPrompts()
    assert seen.common_tokens([1, 2]) == 0
    seen.add([1, 2, 3])
    seen.add([1, 2, 9, 9])
    assert seen.common_tokens([1, 2, 9, 4]) == 3


def test_a_server_that_cannot_tokenize_is_none():
    with chat_server(lambda _: []) as server:
        assert find_server_tokens(Endpoint.parse(server.url)) is None


def test_a_llama_server_counts_exactly():
    with chat_server(lambda _: []) as server:
        server.other = {"/tokenize": {"tokens": [1, 2, 3]}, "/apply-template": {"prompt": "x"}}
        tokens = find_server_tokens(Endpoint.parse(server.url))
        assert tokens is not None
        assert tokens.is_exact
        assert tokens.of_chat(BODY) == [1, 2, 3]


def test_a_bare_tokenizer_is_said_to_be_inexact():
    with chat_server(lambda _: []) as server:
        server.other = {"/extras/tokenize": {"tokens": [4]}}
        tokens = find_server_tokens(Endpoint.parse(server.url))
        assert tokens is not None
        assert not tokens.is_exact
        assert tokens.of_chat(BODY) == [4]


@pytest.mark.models
def test_a_file_counts_as_the_server_renders(smollm2_path: Path):
    tokens = FileTokens(smollm2_path)
    short, long = tokens.of_chat({"messages": BODY["messages"][:1]}), tokens.of_chat(BODY)
    assert 0 < len(short) < len(long)
    assert len(tokens.of_text("<|im_end|>")) > 1  # an answer's text is no control token
