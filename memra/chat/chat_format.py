"""What one served model knows about text: its template, its tokenizer, and the length of its context.

Trade: any kind of prompt becomes token ids, with a fresh reader for the answer; a prompt that the model cannot take is
refused here, before the worker hears of it. It refuses to know the model's weights and the wire. Built once per model
at start; immutable afterwards, so any number of threads may render with it at once. Called by templating.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from memra.chat.answer_reader import TextAnswerReader
from memra.chat.answer_style import AnswerStyle
from memra.chat.chatml import CHATML_TEMPLATE
from memra.chat.grammar import GrammarCompiler
from memra.chat.grammar_matcher import GrammarMatcher
from memra.chat.grammar_thinking import ThinkingFirst, ThoughtTokens
from memra.chat.taught_tools import has_tool_turns, teach_tools
from memra.chat.template import ChatTemplate
from memra.chat.text_format import detokenize_ids, tokenize_text, wrong_task
from memra.chat.tokenizer import Tokenizer, build_tokenizer
from memra.chat.tool_dialects.contract import ToolDialect
from memra.chat.tool_dialects.lark_grammar import with_tokens
from memra.chat.tool_dialects.registry import GENERIC
from memra.errors import ContextLengthError, InvalidRequestError, TemplateError, WrongTaskError
from memra.messages.constraint import AnswerGrammar, GrammarKind
from memra.messages.generation import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from memra.messages.prompt import AnswerReader, PromptRendered, RenderPrompt
from memra.messages.texts import DetokenizeIds, RenderTexts, TextsRendered, TextTokenized, TokenizeText
from memra.messages.vocabulary import Vocabulary
from memra.types import ModelTask, TokenId

_TOOL_USE = "tool_use"
"""The name that transformers looks for when a chat has tools."""


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """Words to tokens for one model.

    Special tokens are found wherever their text stands in the rendered prompt, as in `transformers`: a message that
    contains the text of a control token (`<|im_end|>`) is read as that token, and can end its own turn. Whoever passes
    foreign text to a model has to take such text out first.

    Attributes:
        template: for a chat without tools.
        tool_template: for one with tools; the same unless the model has one of its own for that.
        context_tokens: prompt and answer together.
        style: how the model answers a chat without tools.
        tool_style: how it answers one with tools.
        grammars: compiles what answers must match.
        thoughts: finds out whether answers begin with thoughts.
        teaches_tools: the prompt tells of tools in words where the template has no place for them.
    """

    tokenizer: Tokenizer
    template: ChatTemplate
    tool_template: ChatTemplate
    context_tokens: int
    style: AnswerStyle
    tool_style: AnswerStyle
    grammars: GrammarCompiler
    thoughts: ThoughtTokens
    teaches_tools: bool = False

    @classmethod
    def build(
        cls,
        vocabulary: Vocabulary,
        *,
        context_tokens: int,
        teaches_tools: bool = False,
        dialects: Sequence[ToolDialect] = (),
    ) -> "ChatFormat":
        """Build the format of a model; one without a chat template speaks plain ChatML.

        Takes up to a few seconds for large vocabularies.

        Args:
            vocabulary: of the model's files.
            context_tokens: prompt and answer together.
            teaches_tools: tell of tools in words where the template has no place for them, instead of a refusal.
            dialects: further ways to write calls of tools, asked before the known ones.

        Raises:
            UnsupportedModelError: the tokenizer is of no known kind, or the chat template is invalid.
            CorruptFileError: the vocabulary contradicts itself.
        """
        tokenizer = build_tokenizer(vocabulary)
        read = partial(ChatTemplate, bos_text=tokenizer.bos_text or None, eos_text=tokenizer.eos_text or None)
        template = read(CHATML_TEMPLATE if vocabulary.chat_template is None else vocabulary.chat_template)
        for_tools = vocabulary.named_templates.get(_TOOL_USE)
        tool_template = template if for_tools is None else read(for_tools)
        find_style = partial(
            AnswerStyle.find, tokenizer=tokenizer, taught=GENERIC if teaches_tools else None, dialects=dialects
        )
        style = find_style(template)
        return cls(
            tokenizer,
            template,
            tool_template,
            context_tokens,
            style=style,
            tool_style=style if for_tools is None else find_style(tool_template),
            grammars=GrammarCompiler(tokenizer),
            thoughts=ThoughtTokens(tokenizer),
            teaches_tools=teaches_tools,
        )

    def render(self, command: RenderPrompt) -> PromptRendered:
        """Turn a prompt into token ids, with a reader for its answer.

        Raises:
            InvalidRequestError: the prompt is empty, has ids outside the vocabulary or tools that the template does not
                know, a stop token is outside the vocabulary, or the stop strings or the grammar cannot be used.
            TemplateError: the template refused the messages.
            ContextLengthError: the prompt leaves no room for an answer.
            BusyError: the grammar takes too long.
        """
        self._check_known("stop_token_ids", command.stop_token_ids)
        self._check_known("logit_bias", command.biased_ids)
        prompt_text = self._fill(command.prompt)
        prompt_ids = self._encode(command.prompt, prompt_text)
        open_reader = partial(self._reader, command, prompt_text, prompt_ids)
        param = command.prompt.param
        if not prompt_ids:
            raise InvalidRequestError(f"the prompt is empty; send at least one token of text in {param!r}", param=param)
        if len(prompt_ids) >= self.context_tokens:
            raise ContextLengthError(
                f"the prompt has {len(prompt_ids)} tokens and the model's context {self.context_tokens}, one of which "
                f"the answer needs; shorten {param!r}",
                param=param,
            )
        return PromptRendered(
            prompt_ids=prompt_ids,
            eos_ids=frozenset() if command.ends.ignores_eos else self.tokenizer.eos_ids,
            context_tokens=self.context_tokens,
            reader=open_reader(),
            further_readers=tuple(open_reader() for _ in range(command.num_answers - 1)),
            echo=self._spell(command.prompt, prompt_ids) if command.wants_echo else "",
            constraint=self._constrain(command, prompt_ids),
        )

    def _constrain(
        self, command: RenderPrompt, prompt_ids: tuple[TokenId, ...]
    ) -> GrammarMatcher | ThinkingFirst | None:
        """Compile what the answer must match, calls of tools included; it binds a chat once the model has thought."""
        grammar, prompt = command.grammar, command.prompt
        if not isinstance(prompt, ChatPrompt):
            return None if grammar is None else self.grammars.compile(grammar)
        if prompt.must_call:
            calls = self._calls(prompt, names=prompt.must_call)
            grammar = AnswerGrammar(GrammarKind.RULES, calls, "tool_choice")
            compiled = self.grammars.compile(grammar)
        elif grammar is not None:
            names = [tool["function"]["name"] for tool in prompt.tools or ()]
            compiled = self.grammars.compile(grammar, calls=self._calls(prompt, names=names) if names else None)
        else:
            return None
        template = self.tool_template if prompt.tools else self.template
        thoughts = self.thoughts.find(prompt_ids, template=template.source)
        return compiled if thoughts is None else ThinkingFirst(compiled, thoughts, self.thoughts)

    def _calls(self, prompt: ChatPrompt, *, names: Sequence[str]) -> str:
        """Return the grammar of calls of these tools, as the model's template writes them; the template has a place."""
        dialect = self.tool_style.dialect or GENERIC
        grammar = dialect.grammar(prompt.tools or (), names=names, at_least_one=not prompt.is_single_call)
        return with_tokens(grammar, self._find_control_token)

    def _find_control_token(self, text: str) -> TokenId | None:
        token_id = self.tokenizer.find_token(text)
        return token_id if token_id in self.tokenizer.control_ids else None

    def render_texts(self, command: RenderTexts) -> TextsRendered:
        """Refuse texts for vectors or scores: this model generates.

        Raises:
            WrongTaskError: always.
        """
        raise WrongTaskError(wrong_task(command.model, ModelTask.GENERATE), param="model")

    def tokenize(self, command: TokenizeText) -> TextTokenized:
        """Turn a prompt into token ids without bounds: a chat as it would be generated from, a text as asked for.

        Raises:
            InvalidRequestError: the prompt has ids outside the vocabulary or tools that the template does not know.
            TemplateError: the template refused the messages.
        """
        wanted = command.wanted
        if isinstance(wanted.prompt, ChatPrompt):
            return TextTokenized(self._encode(wanted.prompt, self._fill(wanted.prompt)), self.context_tokens)
        return tokenize_text(self.tokenizer, wanted, context_tokens=self.context_tokens)

    def detokenize(self, command: DetokenizeIds) -> str:
        """Return the text of token ids, control tokens by their names.

        Raises:
            InvalidRequestError: an id is outside of the vocabulary.
        """
        return detokenize_ids(self.tokenizer, command.wanted)

    def _reader(self, command: RenderPrompt, prompt_text: str, prompt_ids: tuple[TokenId, ...]) -> AnswerReader:
        prompt, stop_strings, ends = command.prompt, command.stop_strings, command.ends
        if not isinstance(prompt, ChatPrompt) or prompt.is_plain_answer:
            return TextAnswerReader(self.tokenizer, prompt_ids=prompt_ids, stop_strings=stop_strings, ends=ends)
        style = self.tool_style if prompt.tools else self.style
        if prompt.template_options.get("enable_thinking") is False and style.is_thinking(prompt_text):
            raise InvalidRequestError(
                "this model's chat template makes it think before every answer; leave 'enable_thinking', and every "
                "other field that turns thinking off, out of the request",
                param="enable_thinking",
            )
        return style.open(
            prompt_text,
            prompt_ids=prompt_ids,
            tools=prompt.tools,
            is_single_call=prompt.is_single_call,
            stop_strings=stop_strings,
            ends=ends,
            begun=prompt.begun_text,
        )

    def _fill(self, prompt: Prompt) -> str:
        """Return the text of a prompt; empty for one that is tokens already."""
        match prompt:
            case ChatPrompt():
                return self._fill_chat(prompt)
            case TextPrompt():
                return prompt.text
            case TokenPrompt():
                return ""

    def _encode(self, prompt: Prompt, text: str) -> tuple[TokenId, ...]:
        match prompt:
            case ChatPrompt():
                return self._encode_chat(text)
            case TextPrompt():
                return self.tokenizer.encode(text, add_special=prompt.adds_special, parse_special=True)
            case TokenPrompt():
                return self._check_ids(prompt)

    def _fill_chat(self, prompt: ChatPrompt) -> str:
        if not prompt.messages:
            raise InvalidRequestError(f"there is no message; send at least one in {prompt.param!r}", param=prompt.param)
        template = self.tool_template if prompt.tools else self.template
        if not template.traits.supports_tools and self.teaches_tools and has_tool_turns(prompt):
            prompt = teach_tools(prompt, takes_system=template.takes_system())
        elif prompt.tools and not template.traits.supports_tools:
            raise InvalidRequestError(
                "this model's chat template has no place for tools; leave 'tools' out, choose another model, or have "
                "the server tell it of tools in words (MEMRA_GENERIC_TOOLS)",
                param="tools",
            )
        return _fill_template(template, prompt)

    def _encode_chat(self, text: str) -> tuple[TokenId, ...]:
        ids = self.tokenizer.encode(text, add_special=False, parse_special=True)
        # Most templates write the tokens that begin a text themselves; an ending token would close the opened turn.
        prefix = self.tokenizer.prefix_ids
        return ids if ids[: len(prefix)] == prefix else prefix + ids

    def _check_ids(self, prompt: TokenPrompt) -> tuple[TokenId, ...]:
        for position, token_id in enumerate(prompt.token_ids):
            if not self._knows(token_id):
                raise InvalidRequestError(
                    f"the token at position {position} of {prompt.param!r} is {token_id}; {self._ids_in_words}",
                    param=prompt.param,
                )
        return prompt.token_ids

    def _spell(self, prompt: Prompt, prompt_ids: tuple[TokenId, ...]) -> str:
        """Return the prompt as text: as sent, or what its tokens say; of a chat, what was begun of the answer."""
        match prompt:
            case TextPrompt():
                return prompt.text
            case ChatPrompt(goes_on=True):
                return prompt.begun_text or ""
            case _:
                return self.tokenizer.decode(prompt_ids)

    def _check_known(self, param: str, token_ids: frozenset[TokenId]) -> None:
        strangers = sorted(token_id for token_id in token_ids if not self._knows(token_id))
        if strangers:
            raise InvalidRequestError(f"{param!r} holds {strangers[0]}; {self._ids_in_words}", param=param)

    def _knows(self, token_id: TokenId) -> bool:
        return 0 <= token_id < self.tokenizer.vocab_size

    @property
    def _ids_in_words(self) -> str:
        vocab_size = self.tokenizer.vocab_size
        return f"ids of this model are 0 to {vocab_size - 1} (vocabulary size {vocab_size})"


def _fill_template(template: ChatTemplate, prompt: ChatPrompt) -> str:
    try:
        return template.render(prompt)
    except TemplateError as error:
        # The template knows only messages, whatever field they were made of.
        raise TemplateError(error.message, param=prompt.param) from error
