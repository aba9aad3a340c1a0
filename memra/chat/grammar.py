"""Grammars for one model's answers: from what a client wrote to masks over the next token.

Trade: compiles JSON schemas, Lark, GBNF and regular expressions with llguidance, within limits. It refuses to know
templates, thoughts and the wire. One compiler a model, called by `memra.chat.chat_format` from templating's thread; any
number of threads may use it.
"""

import threading

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from memra.chat.grammar_deadline import CompileDeadline
from memra.chat.grammar_limits import PARSER_LIMITS, check_size
from memra.chat.grammar_matcher import GrammarMatcher
from memra.chat.grammar_source import either, refusal, translate
from memra.chat.grammar_tokens import GrammarTokens
from memra.chat.tokenizer import Tokenizer
from memra.errors import GrammarDeadEndError, InvalidRequestError
from memra.messages.constraint import AnswerGrammar


class GrammarCompiler:
    """Compiles grammars for one tokenizer, whose form for llguidance is made at the first grammar."""

    def __init__(self, tokenizer: Tokenizer, *, limits: LLParserLimits = PARSER_LIMITS) -> None:
        """Take a model's tokenizer, and what one answer's masks may cost; costs nothing itself."""
        self._tokenizer = tokenizer
        self._limits = limits
        self._lock = threading.Lock()
        self._tokens: LLTokenizer | None = None
        self._deadline = CompileDeadline()

    def compile(self, grammar: AnswerGrammar, *, calls: str | None = None) -> GrammarMatcher:
        """Return what an answer must follow from its first token on.

        Waits a few milliseconds, at most as long as `grammar_deadline` says, and a second more for a model's first one.

        Args:
            grammar: what the client asks for.
            calls: Lark for calls of tools, which the answer may consist of instead.

        Raises:
            InvalidRequestError: the grammar is too large, is not valid, uses a keyword that no answer can be held to,
                or matches nothing; or the model has no token that ends an answer.
            BusyError: it took too long, or too many such are still being worked on.
        """
        check_size(grammar)
        tokens = self._prepare(grammar)
        return self._deadline.run(lambda: self._compile(grammar, calls, tokens), param=grammar.param)

    def _compile(self, grammar: AnswerGrammar, calls: str | None, tokens: LLTokenizer) -> GrammarMatcher:
        source = translate(grammar) if calls is None else either(translate(grammar), calls)
        matcher = LLMatcher(tokens, source, log_level=0, limits=self._limits)
        if matcher.is_error():
            raise refusal(grammar, matcher.get_error())
        compiled = GrammarMatcher(matcher, tokens, vocab_size=self._tokenizer.vocab_size)
        try:
            compiled.allowed()
        except GrammarDeadEndError as error:
            raise refusal(grammar, f"nothing matches it ({error.message})") from None
        if matcher.is_stopped() and not matcher.is_accepting():
            raise refusal(grammar, "nothing matches it")
        return compiled

    def prepare(self) -> None:
        """Make the tokenizer's form now, so that no request waits for it.

        Takes up to a second for the largest vocabularies, in which no other Python thread runs: llguidance
        keeps the interpreter's lock. Some 50 MB are held from then on.
        """
        if self._tokenizer.eos_ids:
            self._build()

    def _prepare(self, grammar: AnswerGrammar) -> LLTokenizer:
        if not self._tokenizer.eos_ids:
            raise InvalidRequestError(
                f"this model has no token that ends an answer, so `{grammar.param}` cannot be used; leave it out.",
                param=grammar.param,
            )
        return self._build()

    def _build(self) -> LLTokenizer:
        with self._lock:
            if self._tokens is None:
                self._tokens = GrammarTokens(self._tokenizer).build()
            return self._tokens
