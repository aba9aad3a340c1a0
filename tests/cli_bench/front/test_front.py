"""What the front costs is measured by the server's own functions, and told as it was measured."""

import json

import pytest

from memra.chat.byte_alphabet import BYTE_OF_CHAR
from memra.chat.chat_format import ChatFormat
from memra.cli_bench.front.chat_body import NUM_TOOLS, NUM_TURNS, make_chat
from memra.cli_bench.front.front_load import NUM_CLIENTS, ONE_REQUEST, FrontLoad, make_loads, token_case
from memra.cli_bench.front.front_report import FrontReport, front_json, render_front
from memra.cli_bench.front.processor_time import least_us, read_main_thread_s
from memra.cli_bench.front.request_parts import RequestParts, measure_parts
from memra.cli_bench.front.scripted_front import measure_front
from memra.cli_bench.front.served_front import measure_served
from memra.cli_bench.load_client import Target, ThreadClient
from memra.cli_bench.served_bench import SERVED, ServedTarget
from memra.errors import MeasurementError
from memra.messages.vocabulary import TokenizerKind, TokenType, Vocabulary
from tests.cli_bench.sse_server import sse_server

TEMPLATE = """{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}{% for call in message.tool_calls or [] %}
<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture(scope="module")
def chat_format() -> ChatFormat:
    specials = ("<|im_start|>", "<|im_end|>")
    vocabulary = Vocabulary(
        kind=TokenizerKind.BYTE_BPE,
        tokens=(*BYTE_OF_CHAR, *specials, "zz"),
        merges=("z z",),
        token_types=(TokenType.NORMAL,) * 256 + (TokenType.CONTROL,) * 2 + (TokenType.NORMAL,),
        eos_id=257,
        chat_template=TEMPLATE,
    )
    return ChatFormat.build(vocabulary, context_tokens=1 << 20)


def test_the_chat_has_its_turns_and_tools_and_is_the_same_every_time():
    chat = make_chat("m", with_tools=True, max_tokens=1)
    assert chat == make_chat("m", with_tools=True, max_tokens=1)
    roles = [message["role"] for message in chat["messages"]]
    assert (roles.count("user"), roles.count("tool"), len(chat["tools"])) == (NUM_TURNS + 1, NUM_TURNS // 2, NUM_TOOLS)
    plain = make_chat("m", with_tools=False, max_tokens=1)
    assert "tools" not in plain
    assert not any("tool_calls" in message or message["role"] == "tool" for message in plain["messages"])


def test_every_stage_of_a_chat_costs_something(chat_format: ChatFormat):
    parts = measure_parts(chat_format, make_chat("m", with_tools=True, max_tokens=1), rounds=1)
    assert min(parts.validate, parts.render, parts.tokenize, parts.frame_whole, parts.frame_token) > 0
    assert parts.num_prompt_tokens > 5000
    assert parts.request_ms == pytest.approx((parts.validate + parts.render + parts.frame_whole) / 1e3)


def test_the_best_round_counts_and_is_divided_by_its_repeats():
    spins = iter([400_000, 40_000, 400_000])
    assert least_us(lambda: sum(range(next(spins))), rounds=3) < least_us(lambda: sum(range(300_000)), rounds=3)
    assert least_us(lambda: sum(range(20_000)), rounds=3, repeats=20) < least_us(lambda: sum(range(200_000)), rounds=3)


def test_a_scripted_worker_answers_through_the_whole_front(chat_format: ChatFormat):
    loads = make_loads("m", with_tools=True, num_tokens=5)
    costs = measure_front(chat_format, loads, client=ThreadClient(), rounds=1, step_s=0.001)
    assert set(costs) == {ONE_REQUEST, *map(token_case, NUM_CLIENTS)}
    assert min(costs.values()) > 0


def test_a_refused_request_is_no_figure(chat_format: ChatFormat):
    load = {"bad": FrontLoad([{"messages": []}], is_about_tokens=False)}
    with pytest.raises(MeasurementError, match="status 400"):
        measure_front(chat_format, load, client=ThreadClient(), rounds=1)


def test_a_running_server_is_charged_by_its_tokens_or_its_requests():
    seconds = iter(range(1000))
    loads = {
        "tokens": FrontLoad([{"prompt": "a"}, {"prompt": "b"}], is_about_tokens=True),
        "requests": FrontLoad([{"prompt": "a"}, {"prompt": "b"}], is_about_tokens=False),
    }
    with sse_server() as server:
        target = ServedTarget(SERVED, Target.parse(server.url), "m", "secret")
        costs = measure_served(
            loads, server=target, client=ThreadClient(), read_loop_s=lambda: float(next(seconds)), rounds=1
        )
        assert {body["path"] for body in server.bodies} == {"/v1/chat/completions"}
        blind = measure_served(loads, server=target, client=ThreadClient(), read_loop_s=lambda: None, rounds=1)
    assert costs == {"tokens": pytest.approx(1e6 / 14), "requests": pytest.approx(1e6 / 2)}
    assert blind == {}


def test_the_first_threads_time_is_read_where_the_system_tells_it(tmp_path):
    folder = tmp_path / "7" / "task" / "7"
    folder.mkdir(parents=True)
    (folder / "schedstat").write_text("2500000000 17 3\n")
    assert read_main_thread_s(7, proc=tmp_path) == 2.5
    assert read_main_thread_s(8, proc=tmp_path) is None
    (folder / "schedstat").write_text("\n")
    assert read_main_thread_s(7, proc=tmp_path) is None


def test_the_report_has_every_figure_beside_its_goal():
    parts = RequestParts(
        num_prompt_tokens=5435, validate=100.0, render=1300.0, tokenize=4700.0, frame_whole=7.0, frame_token=0.4
    )
    report = FrontReport(
        "m", 62, 10, parts, "compiled", {ONE_REQUEST: 6000.0, token_case(8): 64.0}, {token_case(8): 71.0}
    )
    report.notes.append("by the way")
    text = render_front(report)
    for figure in (
        "62 messages, 10 tools",
        "5,435 tokens",
        "below 3",
        "1.41",
        "below 10",
        "64.0",
        "71.0",
        "by the way",
    ):
        assert figure in text, figure
    assert json.loads(json.dumps(front_json([report])))["m"]["served_us"] == {token_case(8): 71.0}
