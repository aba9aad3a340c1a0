"""Models as feeds are told of them: with nothing declared, and with everything."""

import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from memra.metadata.tables import ModelTable, ProviderTable
from memra.plugins.feeds import ModelCard
from memra.types import ModelName, ModelTask

BARE = ModelCard(ModelName("bare"), created=1_700_000_000)
"""Never loaded, nothing declared."""

EVERYTHING = """
name = "Example: Chat 8B"
description = "A model for chats: says \\"yes\\" & more."
hugging_face_id = "example/chat-8b"
created = 1760000000
updated = 1760086400
quantization = "int8"
licensing = "apache-2.0"
lifecycle = "deprecated"
deprecation_date = 2031-02-03
is_ready = false
is_free = false
discount_to_user = 0.25
openrouter_slug = "example/slug"
datacenters = [{ country_code = "DE" }, { country_code = "US", region = "east" }]
zdr = true
hipaa = false
max_prompt_length = 30000
max_output_length = 8192
[pricing]
prompt = "0.00000005"
cached_prompt = "0.00000001"
cache_write = "0.00000006"
completion = "0.00000015"
internal_reasoning = "0.00000015"
request = "0.001"
[capacity]
prompt_tpm = 2000000
cached_prompt_tpm = 1000000
completion_tpm = 200000
request_rpm = 600
concurrency = 64
"""
PROVIDER = """
id = "acme"
name = "Acme"
description = "Small models on plain machines."
api_base_url = "https://api.acme.example/v1"
auth_type = "bearer"
regions = ["eu-west-1", "global"]
compatibility = "openai"
created = 1750000000
"""


def _plain(text: str, kind: Any) -> Mapping[str, Any]:
    return msgspec.to_builtins(msgspec.convert(tomllib.loads(text), kind))


FULL = ModelCard(
    ModelName("org/chat-8b"),
    task=ModelTask.GENERATE,
    context_tokens=32768,
    has_tools=True,
    can_reason=True,
    quantization="int4",
    tokenizer="qwen2",
    architecture="qwen3",
    created=1_700_000_000,
    declared=_plain(EVERYTHING, ModelTable),
    provider=_plain(PROVIDER, ProviderTable),
)
