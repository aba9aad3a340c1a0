"""The main job: an OpenAI client talks to two different real models on one endpoint."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

from tests.e2e.server_process import Server, Start

pytestmark = [pytest.mark.models, pytest.mark.timeout(600)]

QUESTIONS = [
    ("small", "Name three rivers in Europe."),
    ("coder", "Write a Python function that reverses a string."),
    ("small", "What is the capital of Japan?"),
    ("coder", "What does the SQL keyword JOIN do?"),
    ("small", "Tell me a short story about a fox. Use an emoji."),
    ("coder", "Explain recursion in one sentence."),
    ("small", "请用中文说你好。"),
    ("coder", "Was ist ein Zeiger in C? Antworte auf Deutsch."),
]


@pytest.fixture(scope="module", params=["auto", pytest.param("torch", marks=pytest.mark.slow)])
def server(request, start: Start, smollm2_path: Path, qwen_path: Path) -> Server:
    environ = {"MEMRA_EXECUTOR": request.param}
    return start("-m", f"small={smollm2_path}", "-m", f"coder={qwen_path}", environ=environ)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=300) as client:
        yield client


def ask(client: openai.OpenAI, model: str, question: str) -> str:
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], temperature=0, max_tokens=24
    )
    assert answer.choices[0].message.content is not None
    return answer.choices[0].message.content


def ask_streamed(client: openai.OpenAI, model: str, question: str) -> str:
    stream = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], temperature=0, max_tokens=24, stream=True
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_both_models_are_listed(client: openai.OpenAI):
    assert [model.id for model in client.models.list()] == ["small", "coder"]


def test_both_models_answer_streamed_and_not_with_the_same_words(client: openai.OpenAI):
    for model, question in QUESTIONS[:2]:
        whole = ask(client, model, question)
        assert whole.strip()
        assert ask_streamed(client, model, question) == whole


def test_the_coder_knows_how_to_reverse_a_string(client: openai.OpenAI):
    assert "def " in ask(client, "coder", "Write a Python function that reverses a string. Code only.")


def test_parallel_answers_are_byte_for_byte_those_given_alone(client: openai.OpenAI):
    alone = [ask(client, *question) for question in QUESTIONS]
    with ThreadPoolExecutor(len(QUESTIONS)) as pool:
        together = list(pool.map(lambda question: ask_streamed(client, *question), QUESTIONS))
    assert together == alone


def test_a_seed_fixes_a_sampled_answer(client: openai.OpenAI):
    def draw(seed: int) -> str | None:
        answer = client.chat.completions.create(
            model="small",
            messages=[{"role": "user", "content": "Invent a name for a ship."}],
            temperature=1.2,
            top_p=0.95,
            seed=seed,
            max_tokens=16,
        )
        return answer.choices[0].message.content

    assert draw(7) == draw(7)
    assert len({draw(seed) for seed in range(3)}) > 1


def test_a_stop_string_ends_the_answer_before_itself(client: openai.OpenAI):
    stream = client.chat.completions.create(
        model="small",
        messages=[{"role": "user", "content": "Count: 1, 2, 3, 4, 5, 6, 7, 8"}],
        temperature=0,
        max_tokens=64,
        stop=[",", "."],
        stream=True,
    )
    chunks = [chunk.choices[0] for chunk in stream if chunk.choices]
    text = "".join(chunk.delta.content or "" for chunk in chunks)
    assert "," not in text
    assert "." not in text
    assert chunks[-1].finish_reason == "stop"


def test_usage_counts_the_rendered_prompt_and_the_answer(client: openai.OpenAI):
    answer = client.chat.completions.create(
        model="small", messages=[{"role": "user", "content": "Hi"}], temperature=0, max_tokens=5
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    assert answer.usage.prompt_tokens > 20  # the template's system turn is part of the prompt
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 5
    assert answer.choices[0].finish_reason == "length"


def test_raw_completions_are_served_too(client: openai.OpenAI):
    answer = client.with_options(max_retries=0).post(
        "/completions",
        body={"model": "coder", "prompt": "def add(a, b):\n    return", "max_tokens": 8, "temperature": 0},
        cast_to=dict,
    )
    assert "a + b" in answer["text"]


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"model": "absent"}, "model", "absent"),
        ({"messages": []}, "messages", "messages"),
        ({"max_tokens": "many"}, "max_tokens", "int"),
        ({"messages": [{"role": "user", "content": "word " * 9000}], "model": "small"}, "messages", "8192"),
    ],
)
def test_a_bad_request_is_refused_by_its_field(client: openai.OpenAI, change, param, words):
    body = {"model": "small", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4} | change
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/chat/completions", body=body, cast_to=dict)
    error = caught.value.body
    assert isinstance(error, dict)
    assert error["param"] == param
    assert words in error["message"]


def test_clients_that_leave_free_their_rows(server: Server, client: openai.OpenAI):
    num_aborted = server.metrics()["aborted"]
    streams = [
        client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "Write all numbers from 1 to 1000, one per line."}],
            temperature=0,
            max_tokens=2000,
            stream=True,
        )
        for model in ("small", "coder", "small")
    ]
    for stream in streams:
        next(iter(stream))
    server.wait_for_metrics(active_sessions=3)
    for stream in streams:
        stream.close()
    server.wait_for_metrics(active_sessions=0, aborted=num_aborted + 3)


def test_an_answer_that_ran_beside_those_that_left_is_unchanged(client: openai.OpenAI):
    alone = ask(client, *QUESTIONS[0])
    with client.chat.completions.create(
        model="small", messages=[{"role": "user", "content": "Count."}], max_tokens=500, stream=True
    ) as stream:
        next(iter(stream))
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(ask, client, *QUESTIONS[0])
    assert beside.result() == alone
