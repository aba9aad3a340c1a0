"""Names of fields that are no text: the body is no JSON, also where only a field that nobody reads is called so."""

from typing import Any

import httpx
import pytest


@pytest.mark.parametrize("name", [b"x\xff", b"x\xed\xbf\xbf", b"x\xf4\x90\x80\x80"])
async def test_an_unread_field_whose_name_is_no_text_is_refused(start: Any, name: bytes):
    server = await start()
    body = b'{"model": "fake", "messages": [{"role": "user", "content": "hi"}], "' + name + b'": null}'
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        reply = await client.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code == 400
    assert "not valid JSON" in reply.json()["error"]["message"]
