"""What the fields of requests mean, in a sentence each, and the bounds that the schemas' types do not say.

The types themselves come from the schemas that validate requests; bounds are those that `memra.http.wire` checks with,
so a value outside is refused. A test asks for a row for every field. Refuses to know routes. Read by
`memra.http.openapi.document`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memra.http.request_headers import MAX_LABEL_BYTES
from memra.http.wire import (
    ending_fields,
    foreign_fields,
    generation_fields,
    likelihood_fields,
    rerank,
    sampling_fields,
    thinking_fields,
)
from memra.http.wire.sampling_fields import MAX_INT

_COUNT: Mapping[str, Any] = {"minimum": 0, "maximum": MAX_INT}
_PENALTY: Mapping[str, Any] = {"minimum": -sampling_fields.MAX_PENALTY, "maximum": sampling_fields.MAX_PENALTY}
_AT_LEAST_ONE: Mapping[str, Any] = {"minimum": 1}
_NOT_EMPTY: Mapping[str, Any] = {"minItems": 1}
_EFFORT: Mapping[str, Any] = {"enum": [*thinking_fields.EFFORTS, None]}
_SCHEMA: Mapping[str, Any] = {"type": ["object", "string", "null"]}
_LABEL = f"at most {MAX_LABEL_BYTES} bytes without control characters"


@dataclass(frozen=True, slots=True)
class FieldNote:
    """What is said of one field.

    Attributes:
        text: a sentence; empty where the name says it all.
        bounds: keywords of JSON schema beside the field's type, or its whole type where any JSON may stand.
    """

    text: str = ""
    bounds: Mapping[str, Any] = field(default_factory=dict)


def refused(remedy: str, *, nothing: Sequence[Any] = (None,)) -> FieldNote:
    """Return the note of a field that is known and not supported; `nothing` are the values that ask for nothing."""
    return FieldNote(f"Not supported: a request that asks for it is refused. {remedy}", {"enum": list(nothing)})


_SAMPLING: Mapping[str, FieldNote] = {
    "temperature": FieldNote("0 or less takes the likeliest token; 1 if absent.", {"maximum": 100.0}),
    "top_p": FieldNote(
        "Only the likeliest tokens that have this share together.", {"exclusiveMinimum": 0, "maximum": 1}
    ),
    "top_k": FieldNote("Only so many of the likeliest tokens; 0 means all.", _COUNT),
    "min_p": FieldNote("Only tokens at least this likely, compared with the likeliest.", {"minimum": 0, "maximum": 1}),
    "frequency_penalty": FieldNote("Taken from a token's logit for each time it was said.", _PENALTY),
    "presence_penalty": FieldNote("Taken from a token's logit if it was said.", _PENALTY),
    "repetition_penalty": FieldNote(
        "Divides the logits of tokens that were said or stand in the prompt.",
        {
            "minimum": sampling_fields.MIN_REPETITION_PENALTY,
            "maximum": sampling_fields.MAX_REPETITION_PENALTY,
        },
    ),
    "seed": FieldNote(
        "Equal requests with an equal seed get equal answers; random if absent.",
        {"minimum": 0, "maximum": sampling_fields.MAX_SEED},
    ),
    "logit_bias": FieldNote(
        "Added to the logits of tokens, by id.", {"maxProperties": likelihood_fields.MAX_BIASED_TOKENS}
    ),
}

_THINKING: Mapping[str, FieldNote] = {
    "enable_thinking": FieldNote("Whether the model thinks before it answers, where its template has a switch."),
    "reasoning_effort": FieldNote(
        "How hard the model thinks; none and minimal ask for no thoughts, and what is above high is high.", _EFFORT
    ),
    "reasoning": FieldNote("The same as an object."),
    "include_reasoning": FieldNote("False asks for no thoughts: they are never hidden."),
    "Reasoning.effort": FieldNote("As `reasoning_effort`.", _EFFORT),
    "Reasoning.enabled": FieldNote("As `enable_thinking`."),
    "Reasoning.exclude": FieldNote("True asks for no thoughts."),
}

_SHAPE: Mapping[str, FieldNote] = {
    "response_format": FieldNote(
        "What the answer must be: text, any JSON object, or JSON that a schema allows.",
        {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {
                        "type": {"enum": ["text", "json_object", "json_schema"]},
                        "json_schema": {"description": "An object that holds a `schema`."},
                    },
                    "required": ["type"],
                },
                {"type": "null"},
            ]
        },
    ),
    "grammar": FieldNote("Rules that the answer must match, in Lark's or GBNF's notation."),
    "regex": FieldNote("A regular expression that the whole answer must match."),
    "guided_json": FieldNote("A JSON schema that the answer must match, or the text of one.", _SCHEMA),
    "json_schema": FieldNote("The same.", _SCHEMA),
    "guided_regex": FieldNote("As `regex`."),
    "guided_choice": FieldNote("The answer must be one of these texts.", _NOT_EMPTY),
    "guided_grammar": FieldNote("As `grammar`."),
    "structured_outputs": FieldNote("One of these at most, as an object."),
    "StructuredOutputs.json": FieldNote("As `guided_json`.", _SCHEMA),
    "StructuredOutputs.regex": FieldNote("As `regex`."),
    "StructuredOutputs.choice": FieldNote("As `guided_choice`.", _NOT_EMPTY),
    "StructuredOutputs.grammar": FieldNote("As `grammar`."),
    "StructuredOutputs.json_object": FieldNote("True binds the answer to any JSON object."),
}

_GENERATION: Mapping[str, FieldNote] = {
    "model": FieldNote("A name from `GET /v1/models`."),
    "max_tokens": FieldNote("Longest answer, in tokens; as long as the context allows if absent.", _COUNT),
    "max_completion_tokens": FieldNote("The same; wins over `max_tokens`.", _COUNT),
    "max_ctx": FieldNote("Longest prompt and answer together, in tokens.", _COUNT),
    "timeout_ms": FieldNote("Deadline: of the whole answer, or of the first token where it is streamed.", _COUNT),
    "stop": FieldNote(f"Texts that end the answer and are not part of it, at most {ending_fields.MAX_STOPS}."),
    "stop_token_ids": FieldNote("Tokens that end the answer.", {"maxItems": ending_fields.MAX_STOP_TOKENS}),
    "min_tokens": FieldNote("Shortest answer, in tokens: the model may not end it before.", _COUNT),
    "ignore_eos": FieldNote("True goes on where the model would end, up to the longest answer."),
    "include_stop_str_in_output": FieldNote("True leaves the text of `stop` that ended the answer in it."),
    "skip_special_tokens": FieldNote("False shows the model's control tokens in the answer."),
    "stream": FieldNote("Send the answer as server-sent events while it is generated."),
    "stream_options": FieldNote("How it is streamed."),
    "include_usage": FieldNote("Send the usage in an event of its own."),
    "user": FieldNote(f"Names the conversation where `session_id` does not; {_LABEL}."),
    "session_id": FieldNote(f"Names the conversation; {_LABEL}."),
    "cache_salt": FieldNote(
        "What is computed for this prompt is reused only by requests with the same salt.",
        {"pattern": r"^[A-Za-z0-9\-_.+/=]*$", "maxLength": generation_fields.MAX_SALT_BYTES},
    ),
    "n": FieldNote("How many answers to give.", {"minimum": 1, "maximum": likelihood_fields.MAX_CHOICES}),
    "logprobs": FieldNote("Whether to tell how likely the tokens were.", {"type": ["boolean", "null"]}),
    "top_logprobs": FieldNote(
        "How many of the likeliest tokens to tell beside each generated one; needs `logprobs`.",
        {"type": ["integer", "null"], "minimum": 0, "maximum": likelihood_fields.MAX_CHAT_LOGPROBS},
    ),
    "return_tokens_as_token_ids": FieldNote("True writes tokens of log probabilities as `token_id:5`."),
    "parallel_tool_calls": FieldNote("False allows at most one call of a tool."),
    "chat_template_kwargs": FieldNote("Variables for the model's chat template."),
}

_CHAT: Mapping[str, FieldNote] = {
    "messages": FieldNote("The conversation.", _NOT_EMPTY),
    "tools": FieldNote('Functions that the model may call: `{"type": "function", "function": {"name": ...}}`.'),
    "tool_choice": FieldNote(
        '"auto", "none", "required", or `{"type": "function", "function": {"name": ...}}`.',
        {"type": ["string", "object", "null"]},
    ),
    "continue_final_message": FieldNote("True goes on with the last message, which is the assistant's."),
    "ChatRequest.echo": FieldNote("True puts the begun message before what goes on with it."),
    "ChatRequest.add_special_tokens": FieldNote(
        "Only false: the model's template writes them.", {"enum": [False, None]}
    ),
    "Message.role": FieldNote("", {"enum": ["system", "developer", "user", "assistant", "tool"]}),
    "Message.content": FieldNote("Text, or parts of text."),
    "Message.reasoning": FieldNote("What the assistant thought."),
    "Message.reasoning_content": FieldNote("The same."),
    "Message.name": FieldNote("Who speaks, or which tool answered."),
    "Message.tool_calls": FieldNote("The assistant's calls of tools."),
    "Message.tool_call_id": FieldNote("The call that a tool's message answers."),
    "Message.function_call": refused("Send the call in `tool_calls`."),
    "Message.prefix": FieldNote("True, of the last message: the answer goes on with it."),
    "ContentPart.type": FieldNote("Only text is read, and refusals.", {"enum": ["text", "refusal"]}),
    "ContentPart.text": FieldNote(),
    "ContentPart.refusal": FieldNote("The text of a refusal."),
    "ToolCall.function": FieldNote("What was called."),
    "ToolCall.id": FieldNote("The call's name, which a tool's message repeats."),
    "FunctionCall.name": FieldNote(),
    "FunctionCall.arguments": FieldNote("A JSON object, or the text of one."),
}

_COMPLETION: Mapping[str, FieldNote] = {
    "CompletionRequest.prompt": FieldNote("Text, token ids, or a list of either: one answer to each."),
    "prompt_ids": FieldNote("Token ids, in place of `prompt`."),
    "chat": FieldNote("Wrap the prompt in the model's chat template, as the user's turn."),
    "best_of": FieldNote("Only 1: every answer that is computed is shown.", {"enum": [1, None]}),
    "echo": FieldNote("Put the prompt before the answer."),
    "suffix": FieldNote("Not supported: a request that holds a text here is refused.", {"enum": [None, ""]}),
    "CompletionRequest.logprobs": FieldNote(
        "How many of the likeliest tokens to tell beside each generated one.",
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": likelihood_fields.MAX_COMPLETION_LOGPROBS},
                {"enum": [False, None]},
            ]
        },
    ),
    "CompletionRequest.add_special_tokens": FieldNote(
        "False leaves out the tokens that the model wants around a text."
    ),
    "CompletionRequest.top_logprobs": FieldNote("Not read here."),
    "CompletionRequest.parallel_tool_calls": FieldNote("Not read here."),
}

_RESPONSES: Mapping[str, FieldNote] = {
    "ResponsesRequest.input": FieldNote("The user's text, or the items of the conversation."),
    "instructions": FieldNote("The system's words, before all others."),
    "ResponsesRequest.tools": FieldNote('Functions that the model may call: `{"type": "function", "name": ...}`.'),
    "ResponsesRequest.tool_choice": FieldNote('"auto", "none", "required", or `{"type": "function", "name": ...}`.'),
    "max_output_tokens": FieldNote("Longest answer, in tokens.", _COUNT),
    "ResponsesRequest.top_logprobs": FieldNote("Only 0: a response has no log probabilities.", {"enum": [0, None]}),
    "ResponsesRequest.text": FieldNote("The shape of the answer's text."),
    "ResponsesRequest.reasoning": FieldNote("How hard the model thinks."),
    "include": FieldNote("More to show of the answer; encrypted thoughts are none."),
    "truncation": FieldNote("Only disabled: nothing of a conversation is left out.", {"enum": ["disabled", None]}),
    "store": FieldNote("Only false: nothing is kept between requests.", {"enum": [False, None]}),
    "background": FieldNote("Only false: an answer is given to its request alone.", {"enum": [False, None]}),
    "previous_response_id": refused("Send the whole conversation in `input`."),
    "conversation": refused("Send the whole conversation in `input`."),
    "ResponsesRequest.prompt": refused("Send its text as `instructions` and `input`."),
    "context_management": refused("Leave it out."),
    "moderation": refused("Leave it out."),
    "ResponsesRequest.metadata": FieldNote("Comes back with the answer."),
    "prompt_cache_key": FieldNote(f"Names the conversation; {_LABEL}."),
    "TextSettings.format": FieldNote('`{"type": "text"}`, `{"type": "json_object"}`, or a JSON schema by its name.'),
    "ReasoningSettings.effort": FieldNote("As `reasoning_effort` of a chat."),
    "ReasoningSettings.summary": FieldNote("Changes nothing: thoughts are shown as they are."),
    "InputItem.type": FieldNote(
        "A message if absent.", {"enum": ["message", "reasoning", "function_call", "function_call_output", None]}
    ),
    "InputItem.id": FieldNote("Not read."),
    "InputItem.role": FieldNote("Whose message it is: user, assistant, system or developer."),
    "InputItem.content": FieldNote("The text of a message, or of thoughts."),
    "InputItem.call_id": FieldNote("The call's name, which its output repeats."),
    "InputItem.name": FieldNote("The tool that a call calls."),
    "InputItem.namespace": FieldNote("The group of that tool."),
    "InputItem.arguments": FieldNote("The text of a JSON object."),
    "InputItem.output": FieldNote("What the tool answered."),
    "InputItem.summary": FieldNote("Thoughts, where they have no content."),
    "InputPart.type": FieldNote("Only kinds of text are read, and refusals."),
    "InputPart.text": FieldNote(),
    "InputPart.refusal": FieldNote("The text of a refusal."),
}

_MESSAGES: Mapping[str, FieldNote] = {
    "InputMessage.role": FieldNote("", {"enum": ["user", "assistant", "system"]}),
    "InputMessage.content": FieldNote("Text, or blocks."),
    "system": FieldNote("The system's words, as text or blocks of text."),
    "CountRequest.tools": FieldNote("Tools that the model may call."),
    "MessagesRequest.tools": FieldNote("Tools that the model may call."),
    "CountRequest.tool_choice": FieldNote("Whether the model may, must or must not call a tool."),
    "MessagesRequest.tool_choice": FieldNote("Whether the model may, must or must not call a tool."),
    "thinking": FieldNote("Whether the model thinks before it answers; its template decides if absent."),
    "output_config": FieldNote("How hard the model thinks, and the shape of its answer."),
    "output_format": FieldNote("The same as `output_config.format`, which wins."),
    "mcp_servers": FieldNote("Not supported: a request that names some is refused."),
    "container": FieldNote("Not supported: a request that names one is refused."),
    "MessagesRequest.stop_sequences": FieldNote("Texts that end the answer."),
    "MessagesRequest.metadata": FieldNote("Who asks."),
    "Thinking.type": FieldNote("", {"enum": ["enabled", "adaptive", "disabled"]}),
    "Thinking.budget_tokens": FieldNote("Not enforced."),
    "ToolChoice.type": FieldNote("", {"enum": ["auto", "any", "tool", "none"]}),
    "ToolChoice.name": FieldNote("The tool that must be called."),
    "ToolChoice.disable_parallel_tool_use": FieldNote("True allows at most one call."),
    "Metadata.user_id": FieldNote("Names the conversation."),
    "OutputConfig.effort": FieldNote("low, medium or high; what is above high is high."),
    "OutputConfig.format": FieldNote('`{"type": "json_schema", "schema": ...}`.'),
    "Tool.name": FieldNote(),
    "Tool.type": FieldNote("Only tools of your own.", {"enum": ["custom", None]}),
    "Tool.description": FieldNote("What the tool does, for the model."),
    "Tool.input_schema": FieldNote("A JSON schema of its input; required."),
    "Tool.strict": FieldNote("Changes nothing: an input that is enforced keeps to its schema."),
    "TextBlock.type": FieldNote("Only text is read.", {"const": "text"}),
    "TextBlock.text": FieldNote(),
    "Block.type": FieldNote("text; of the assistant also thinking and tool_use, of the user tool_result."),
    "Block.text": FieldNote("Of a text."),
    "Block.thinking": FieldNote("Of thoughts."),
    "Block.id": FieldNote("Of a call."),
    "Block.name": FieldNote("The tool that a call calls."),
    "Block.input": FieldNote("What a tool is called with."),
    "Block.tool_use_id": FieldNote("The call that a result answers."),
    "Block.content": FieldNote("What the tool answered."),
    "Block.is_error": FieldNote("Whether the tool failed, which the model is told."),
}

_TEXTS: Mapping[str, FieldNote] = {
    "EmbeddingRequest.input": FieldNote("A text, its token ids, or a list of either."),
    "encoding_format": FieldNote("Numbers, or base64 of little-endian float32."),
    "dimensions": FieldNote("Only so many of a vector's first elements, at norm 1 again.", _AT_LEAST_ONE),
    "EmbeddingRequest.truncate_prompt_tokens": refused("Send texts that fit."),
    "query": FieldNote("What the documents should answer.", {"minLength": 1}),
    "RerankRequest.documents": FieldNote(
        "Texts, or objects that hold one.", {**_NOT_EMPTY, "maxItems": rerank.MAX_DOCUMENTS}
    ),
    "top_n": FieldNote("Only so many of the best.", _AT_LEAST_ONE),
    "return_documents": FieldNote("Repeat the documents in the answer."),
    "max_tokens_per_doc": refused("Send documents that fit."),
    "max_chunks_per_doc": refused("Send documents that fit."),
    "rank_fields": refused("Send each document as one text."),
    "Document.text": FieldNote("The document."),
    "TokenizeBody.messages": FieldNote("A conversation, rendered as a chat would be."),
    "TokenizeBody.prompt": FieldNote("A text."),
    "content": FieldNote("The same."),
    "add_special": FieldNote("Put the tokens around the text that the model wants there."),
    "TokenizeBody.add_special_tokens": FieldNote("The same."),
    "parse_special": FieldNote("False reads the spelling of special tokens as plain text."),
    "add_generation_prompt": FieldNote("False leaves out the begin of the assistant's turn."),
    "with_pieces": FieldNote("Only false: ask /v1/detokenize for the text of a token.", {"enum": [False, None]}),
    "tokens": FieldNote("Token ids."),
    "CancelBody.id": FieldNote("The answer's `id`, which is also the header `x-request-id`."),
    "CancelBody.request_id": FieldNote("The same."),
}

_FOREIGN: Mapping[str, FieldNote] = {
    name: refused(f"{remedy[0].upper()}{remedy[1:]}.", nothing=foreign_fields.nothing_asked(name))
    for name, remedy in foreign_fields.REMEDIES.items()
}

FIELD_NOTES: Mapping[str, FieldNote] = {
    **_FOREIGN,
    **_SAMPLING,
    **_THINKING,
    **_SHAPE,
    **_GENERATION,
    **_CHAT,
    **_COMPLETION,
    **_RESPONSES,
    **_MESSAGES,
    **_TEXTS,
}
"""By field, or by schema and field where a name means different things."""


def note_of(schema: str, name: str) -> FieldNote | None:
    """Return what is said of a field of a request's schema, or None where nothing is."""
    return FIELD_NOTES.get(f"{schema}.{name}") or FIELD_NOTES.get(name)
