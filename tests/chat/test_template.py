"""Chat templates: what they may say, what they may not do, and how much."""

import threading
from datetime import datetime
from types import MappingProxyType
from typing import Any

import pytest
from jinja2 import Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from memra.chat.chatml import CHATML_TEMPLATE
from memra.chat.template import ChatTemplate
from memra.chat.template_environment import TemplateEnvironment
from memra.chat.template_limits import RenderLimits
from memra.errors import InvalidRequestError, TemplateError, UnsupportedModelError
from memra.messages.generation import ChatPrompt

SMALL = RenderLimits(max_chars=10_000, max_work=1_000_000, max_s=60.0)
HELLO = ({"role": "user", "content": "hello"},)


def _template(source: str, *, limits: RenderLimits = SMALL) -> ChatTemplate:
    return ChatTemplate(source, bos_text="<s>", eos_text="</s>", limits=limits)


def _render(source: str, **options: Any) -> str:
    return _template(source).render(ChatPrompt(messages=HELLO, template_options=options))


def test_plain_chatml_writes_turns_and_opens_the_answer():
    prompt = ChatPrompt(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": " hi\n"}])
    assert _template(CHATML_TEMPLATE).render(prompt) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n hi\n<|im_end|>\n<|im_start|>assistant\n"
    )


def test_plain_chatml_leaves_the_answer_closed_when_asked():
    prompt = ChatPrompt(messages=HELLO, add_generation_prompt=False)
    assert _template(CHATML_TEMPLATE).render(prompt) == "<|im_start|>user\nhello<|im_end|>\n"


def test_plain_chatml_takes_an_answer_without_text():
    prompt = ChatPrompt(messages=[*HELLO, {"role": "assistant", "content": None}], add_generation_prompt=False)
    assert _template(CHATML_TEMPLATE).render(prompt).endswith("<|im_start|>assistant\n<|im_end|>\n")


def test_special_tokens_are_variables():
    assert _render("{{ bos_token }}|{{ eos_token }}") == "<s>|</s>"


def test_a_token_that_the_model_lacks_is_undefined():
    template = ChatTemplate("{{ bos_token is defined }}", bos_text=None, eos_text="</s>")
    assert template.render(ChatPrompt(messages=HELLO)) == "False"


def test_a_template_option_may_replace_a_special_token():
    assert _render("{{ bos_token }}", bos_token="<other>") == "<other>"  # noqa: S106


def test_the_date_is_the_clocks():
    template = ChatTemplate(
        "{{ strftime_now('%d %b %Y') }}",
        bos_text=None,
        eos_text=None,
        clock=lambda: datetime(2024, 2, 29, 12, 0, 0),  # noqa: DTZ001  (local time is what templates ask for)
    )
    assert template.render(ChatPrompt(messages=HELLO)) == "29 Feb 2024"


def test_the_generation_tag_renders_its_body_and_keeps_what_it_sets_inside():
    source = "{% set x = 1 %}{% generation %}{% set x = 2 %}[{{ x }}]{% endgeneration %}{{ x }}"
    assert _render(source) == "[2]1"


def test_loop_controls_work():
    assert (
        _render(
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}"
            "{% endif %}{{ i }}{% else %}none{% endfor %}"
        )
        == "02"
    )


def test_tojson_keeps_characters_and_takes_the_arguments_of_json():
    source = "{{ x|tojson }}{{ x|tojson(indent=1, separators=(',', ':'), sort_keys=true) }}{{ x|tojson(true) }}"
    assert _render(source, x={"b": "<é'&>", "a": 1}) == (
        '{"b": "<é\'&>", "a": 1}{\n "a":1,\n "b":"<é\'&>"\n}{"b": "<\\u00e9\'&>", "a": 1}'
    )


def test_macros_filters_and_joins_give_what_jinja_gives():
    source = (
        "{% macro turn(m, end='!') %}<{{ m.role ~ ':' ~ m.content|upper ~ end }}>{% endmacro %}"
        "{{ turn(messages[0]) }}{{ [1, 'a', 2.5]|join('-') }}{{ ['x', 'y']|map('upper')|join }}"
        "{{ ', '.join(['p', 'q']) }}{{ '%s=%d' % ('k', 3) }}{{ '{}:{b}'.format(1, b=2) }}{{ 'abc'[1:] }}{{ 2 ** 5 }}"
        "{{ 'ab' * 2 }}{{ [[1], [2]]|sum(start=[])|sum }}{{ 'a\nb'|indent(2) }}{{ 'x'|center(3) }}{{ [1, 2, 3][:2] }}"
    )
    assert _render(source) == "<user:HELLO!>1-a-2.5XYp, qk=31:2bc32abab3a\n  b x [1, 2]"


def test_render_changes_nothing_that_the_client_sent():
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant", "content": None}]
    _template("{{ messages|length }}").render(ChatPrompt(messages=messages))
    assert messages == [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": None},
    ]


def test_read_only_mappings_reach_the_template_as_plain_ones():
    prompt = ChatPrompt(messages=[MappingProxyType({"role": "user", "content": "x"})])
    assert _template("{{ messages|tojson }}").render(prompt) == '[{"role": "user", "content": "x"}]'


def test_documents_are_defined_as_none():
    assert _render("{{ documents is none }}") == "True"


def test_an_empty_list_of_tools_is_no_tools():
    assert _template("{{ tools is none }}").render(ChatPrompt(messages=HELLO, tools=[])) == "True"


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "documents"])
def test_an_option_may_not_take_the_servers_variables(name: str):
    with pytest.raises(InvalidRequestError, match=name) as refusal:
        _render("x", **{name: []})
    assert refusal.value.param == "chat_template_kwargs"


# What the template says when it refuses.


def test_the_templates_own_words_reach_the_client_on_one_line():
    with pytest.raises(TemplateError) as refusal:
        _render("{{ raise_exception('Roles must alternate:\n  user, assistant') }}")
    assert refusal.value.message == (
        "the model's chat template refused the messages: Roles must alternate: user, assistant"
    )
    assert refusal.value.param == "messages"
    assert refusal.value.__cause__ is None


def test_long_words_of_a_template_are_cut():
    with pytest.raises(TemplateError) as refusal:
        _render("{{ raise_exception('x' * 5000) }}")
    assert len(refusal.value.message) < 500


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ messages[0].name.first }}", "has no attribute 'name'"),
        ("{{ nothing.at.all }}", "'nothing' is undefined"),
        ("{{ 'a' + 1 }}", "can only concatenate str"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ x|tojson }}", "Undefined is not JSON serializable"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{% include 'other' %}", "no loader"),
        ("{% if true %}{{ 1|shout }}{% endif %}", "No filter named 'shout'"),
        ("{{ raise_exception(none) }}", "TemplateError"),
    ],
)
def test_a_failure_inside_the_template_is_the_templates_refusal(source: str, words: str):
    with pytest.raises(TemplateError, match=words):
        _template(source, limits=RenderLimits()).render(ChatPrompt(messages=HELLO))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("line\n{% if x %}", "line 2: Unexpected end of template"),
        ("{{ 1|shout }}", "line 1: No filter named 'shout'"),
        ("\n\n{% frob %}", "line 3: Encountered unknown tag 'frob'"),
        ("{% break %}", "'break' outside loop"),
        ("{{ " + "(" * 100_000, "recursion"),
    ],
)
def test_an_invalid_template_is_refused_at_the_start(source: str, words: str):
    with pytest.raises(UnsupportedModelError, match=words) as refusal:
        _template(source)
    assert "\n" not in refusal.value.message


# What the sandbox keeps inside.


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ (''|attr('__class__')).__mro__ }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ '{x.__class__.__mro__}'.format_map({'x': 1}) }}",
        "{{ ['{0.__class__.__mro__}']|map('format', '')|first }}{{ (['']|map(attribute='__class__')|first).x }}",
        "{{ raise_exception.__globals__['__builtins__'] }}",
        "{{ strftime_now.__closure__[0] }}",
        "{{ dict.__class__.__init__.__globals__ }}",
        "{{ dict.mro() }}",
        "{{ namespace.__init__.__globals__.keys() }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ self.__init__.__globals__ }}",
        "{{ self._TemplateReference__context.environment }}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{% set ns = namespace(__class__=1) %}",
        "{{ namespace({'_Namespace__attrs': 1}) }}",
        "{% macro m() %}{% endmacro %}{{ m.__init__.__globals__ }}",
        "{{ lipsum.__globals__ }}",
    ],
)
def test_the_sandbox_lets_nothing_out(source: str):
    with pytest.raises(TemplateError):
        _render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='system') }}",
        "{{ messages[0].pop('role') }}",
        "{{ messages.clear() }}",
        "{{ x.setdefault('a', 1) }}",
    ],
)
def test_the_sandbox_changes_no_value(source: str):
    with pytest.raises(TemplateError, match="unsafe"):
        _render(source, x={})


# How much a template may do.


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) recursive %}{{ loop(range(99999)) if loop.depth < 3 }}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        (
            "{% macro f(n) %}{% if n %}{% call f(n - 1) %}{% endcall %}{% call f(n - 1) %}{% endcall %}{% endif %}"
            "{{ caller() }}{% endmacro %}{% call f(40) %}{% endcall %}"
        ),
        "{% for a in range(9999) %}{% generation %}{% for b in range(99) %}{% endfor %}{% endgeneration %}{% endfor %}",
    ],
)
def test_work_without_end_is_ended(source: str):
    with pytest.raises(TemplateError, match="limits of work"):
        _render(source)


def test_time_is_limited():
    template = _template("{% for a in range(9) %}{% endfor %}", limits=RenderLimits(max_s=0.0))
    with pytest.raises(TemplateError, match="time"):
        template.render(ChatPrompt(messages=HELLO))


def test_a_range_is_limited():
    with pytest.raises(TemplateError, match="Range too big"):
        _render("{{ range(10 ** 9)|list }}")


_DOUBLE_40_TIMES = "{% for i in range(40) %}{% set ns.s = DOUBLE %}{% endfor %}{{ ns.s|length }}"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(9999) %}{{ 'xxxxxxxxxx' }}{% endfor %}",
        "{% set s %}{% for i in range(9999) %}xxxxxxxxxx{% endfor %}{% endset %}{{ s|length }}",
        "{% macro m() %}{% for i in range(5000) %}xxxxxxxxxx{% endfor %}{% endmacro %}{{ m()|length }}",
        "{{ ('x' * 10 ** 10)|length }}",
        "{{ (10 ** 10 * 'x')|length }}",
        "{{ ([1] * 10 ** 10)|length }}",
        "{{ x * 10 ** 10 }}",
        "{{ 'x'.center(10 ** 10)|length }}",
        "{{ 'x'.ljust(10 ** 10)|length }}",
        "{{ 'x'.zfill(10 ** 10)|length }}",
        "{{ '\t'.expandtabs(10 ** 10)|length }}",
        "{{ ('x' * 999).replace('x', 'y' * 999)|length }}",
        "{{ ('x' * 999)|replace('x', 'y' * 999)|length }}",
        "{{ ('x' * 999).replace('', 'y' * 999)|length }}",
        "{{ ('x' * 999).translate({120: 'y' * 999})|length }}",
        "{{ ('x' * 999).join(['y'] * 999)|length }}",
        "{{ (['y'] * 999)|join('x' * 999)|length }}",
        "{{ (['y' * 999] * 999)|join|length }}",
        "{{ 'x'|center(10 ** 10)|length }}",
        "{{ 'x'|center(width=10 ** 10)|length }}",
        "{{ 'x\ny'|indent(10 ** 10)|length }}",
        "{{ 'x\ny'|indent('z' * 9999)|length }}",
        "{{ ['x']|map('center', 10 ** 10)|first|length }}",
        "{{ [1]|batch(10 ** 10, 'x')|list|length }}",
        "{{ [1]|slice(10 ** 10)|list|length }}",
        "{{ 1.5|round(10 ** 10, 'ceil') }}",
        "{{ ('x ' * 999)|wordwrap(1, wrapstring='y' * 99)|length }}",
        "{{ ('%9999999999d' % 1)|length }}",
        "{{ ('%*d' % (10 ** 10, 1))|length }}",
        "{{ ('%s' * 99 % (('x' * 999,) * 99))|length }}",
        "{{ '%9999999999d'|format(1)|length }}",
        "{{ '{:9999999999}'.format(1)|length }}",
        "{{ '{:{}}'.format(1, 10 ** 10)|length }}",
        "{{ ('{0}' * 99).format('x' * 999)|length }}",
        "{{ '{x:9999999999}'.format_map({'x': 1})|length }}",
        "{{ {'a': 1}|tojson(indent=10 ** 10)|length }}",
        "{{ [1, 2]|tojson(separators=('x' * 9999, ':'))|length }}",
        "{{ dict.fromkeys(range(999), 'x' * 999) }}",
        "{{ (['x' * 999] * 999)|string|length }}",
        "{{ (['x' * 999] * 999) ~ '' }}",
        "{{ ['x' * 999] * 999 }}",
        "{% set ns = namespace(s='x') %}" + _DOUBLE_40_TIMES.replace("DOUBLE", "ns.s ~ ns.s"),
        "{% set ns = namespace(s='x') %}" + _DOUBLE_40_TIMES.replace("DOUBLE", "ns.s + ns.s"),
        "{% set ns = namespace(s=[1]) %}" + _DOUBLE_40_TIMES.replace("DOUBLE", "ns.s + ns.s"),
        "{% set ns = namespace(s='x') %}" + _DOUBLE_40_TIMES.replace("DOUBLE", "'%s%s' % (ns.s, ns.s)"),
        "{% set ns = namespace(s=[1]) %}" + _DOUBLE_40_TIMES.replace("DOUBLE", "[ns.s, ns.s]") + "{{ ns.s }}",
        "{% set ns = namespace(s=[1]) %}" + _DOUBLE_40_TIMES.replace("DOUBLE", "[ns.s, ns.s]") + "{{ ns.s|tojson }}",
        "{% set ns = namespace(s={}) %}" + _DOUBLE_40_TIMES.replace("DOUBLE", "{1: ns.s, 2: ns.s}") + "{{ ns.s ~ '' }}",
        "{% set ns = namespace(s=99) %}" + _DOUBLE_40_TIMES.replace("DOUBLE", "ns.s * ns.s"),
        "{{ 10 ** (10 ** 10) }}",
        "{{ (('{:9999999999}'|attr('format'))(1))|length }}",
        "{{ ('{:9999999999}'['format'](1))|length }}",
        "{{ ('%(a).9999999999f' % {'a': 1.0})|length }}",
        "{{ ([[1] * 999] * 999)|sum(start=[])|length }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [range(600)|list] %}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [x.split('y')] %}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [x[1:]] %}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [x.upper()] %}{% endfor %}",
    ],
)
def test_huge_values_are_refused_before_they_are_built(source: str):
    with pytest.raises(TemplateError, match=r"more than \d+ (characters|bits)|limits of work|not bounded"):
        _render(source, x="x" * 5000)


def test_a_constant_of_huge_size_does_not_slow_the_start():
    with pytest.raises(TemplateError, match="more than"):
        _render("{% set a = 'x'|center(10000000000) %}{% set b = 'x' * 10000000000 %}")


def test_a_long_conversation_stays_within_the_default_limits():
    messages = [{"role": ("user", "assistant")[i % 2], "content": "x" * 1000} for i in range(3000)]
    text = _template(CHATML_TEMPLATE, limits=RenderLimits()).render(ChatPrompt(messages=messages))
    assert len(text) > 3_000_000


def test_threads_render_one_template_at_once():
    template = _template(CHATML_TEMPLATE)
    texts: dict[int, str] = {}

    def render(number: int) -> None:
        prompt = ChatPrompt(messages=[{"role": "user", "content": f"message {number}"}] * 40)
        texts[number] = template.render(prompt)

    threads = [threading.Thread(target=render, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: text.count(f"message {number}<") for number, text in texts.items()} == dict.fromkeys(range(8), 40)


def test_a_dictionarys_keys_and_methods_are_found_as_the_sandbox_finds_them():
    message = {"role": "user", "items": "a key", "update": 1, "__class__": 2, "content": None}
    environment = TemplateEnvironment(clock=datetime.now)
    plain = ImmutableSandboxedEnvironment()
    for attribute in ("role", "content", "missing", "items", "get", "update", "clear", "__class__", "mro"):
        ours, theirs = environment.getattr(message, attribute), plain.getattr(message, attribute)
        assert (type(ours), ours == theirs or isinstance(theirs, Undefined)) == (type(theirs), True), attribute
