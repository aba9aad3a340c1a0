// The `openai` npm package on Node: chat, stream, tools, bound answers, responses, models and errors, by its defaults.
// Run by Node's own test runner in a folder that holds the package; MEMRA_URL and MEMRA_KEY say where the server is.

import assert from "node:assert/strict";
import test from "node:test";

import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const { MEMRA_URL, MEMRA_KEY } = process.env;
const CHAT_MODEL = "small";
const TOOL_MODEL = "coder";
const GREETING = [{ role: "user", content: "Name three rivers in Europe." }];
const WEATHER_QUESTION = [{ role: "user", content: "What is the weather in Paris? Call the function." }];
const PERSON_QUESTION = [{ role: "user", content: "Ada Lovelace is 36 years old. Who is she?" }];
const PARAMETERS = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
};
const DESCRIPTION = "Get the current weather of a city.";
const TOOL = {
  type: "function",
  function: { name: "get_weather", description: DESCRIPTION, parameters: PARAMETERS },
};
const Person = z.object({ name: z.string(), age: z.number().int() });

const client = new OpenAI({ baseURL: `${MEMRA_URL}/v1`, apiKey: MEMRA_KEY, maxRetries: 0 });
const common = { model: TOOL_MODEL, temperature: 0, max_tokens: 96 };

test("both models are listed", async () => {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  assert.deepEqual(ids, [CHAT_MODEL, TOOL_MODEL]);
  assert.equal((await client.models.retrieve(CHAT_MODEL)).id, CHAT_MODEL);
});

for (const model of [CHAT_MODEL, TOOL_MODEL]) {
  test(`whole and streamed chats say the same: ${model}`, async () => {
    const body = { ...common, model, messages: GREETING, max_tokens: 24 };
    const whole = await client.chat.completions.create(body);
    let text = "";
    let usage = null;
    const stream = await client.chat.completions.create({
      ...body,
      stream: true,
      stream_options: { include_usage: true },
    });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.ok(text.trim());
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(usage.total_tokens, whole.usage.total_tokens);
    const final = await client.chat.completions.stream(body).finalChatCompletion();
    assert.equal(final.choices[0].message.content, text);
  });
}

test("a stream that is left ends at once, and the next question is answered", async () => {
  const body = { ...common, messages: GREETING, max_tokens: 2000, stream: true };
  for await (const _ of await client.chat.completions.create(body)) break;
  const next = await client.chat.completions.create({ ...common, messages: GREETING, max_tokens: 4 });
  assert.ok(next.choices[0].message.content);
});

test("text completions are read", async () => {
  const body = { ...common, prompt: "def add(a, b):\n    return", max_tokens: 8 };
  const whole = await client.completions.create(body);
  let text = "";
  for await (const chunk of await client.completions.create({ ...body, stream: true })) text += chunk.choices[0].text;
  assert.match(text, /a \+ b/);
  assert.equal(text, whole.choices[0].text);
});

test("tools are called, whole and streamed, and their results read", async () => {
  const body = { ...common, messages: WEATHER_QUESTION, tools: [TOOL] };
  const whole = (await client.chat.completions.create(body)).choices[0];
  const streamed = (await client.chat.completions.stream(body).finalChatCompletion()).choices[0];
  for (const choice of [whole, streamed]) {
    assert.equal(choice.finish_reason, "tool_calls");
    const [call] = choice.message.tool_calls;
    assert.equal(call.function.name, "get_weather");
    assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris" });
    const result = { role: "tool", tool_call_id: call.id, content: "19 degrees, sunny" };
    const messages = [...WEATHER_QUESTION, choice.message, result];
    const told = await client.chat.completions.create({ ...common, messages, max_tokens: 32 });
    assert.match(told.choices[0].message.content, /19/);
  }
});

test("a runner of tools calls them by itself", async () => {
  const cities = [];
  const get_weather = ({ city }) => {
    cities.push(city);
    return "19 degrees, sunny";
  };
  const tool = { ...TOOL, function: { ...TOOL.function, function: get_weather, parse: JSON.parse } };
  const runner = client.chat.completions.runTools(
    { ...common, messages: WEATHER_QUESTION, tools: [tool], stream: true },
    { maxChatCompletions: 2 },
  );
  await runner.done();
  assert.equal(cities[0], "Paris");
});

test("a tool is called where it must be", async () => {
  for (const tool_choice of ["required", { type: "function", function: { name: "get_weather" } }]) {
    const messages = [{ role: "user", content: "Say hello." }];
    const body = { ...common, messages, tools: [TOOL], tool_choice, parallel_tool_calls: false };
    const { choices } = await client.chat.completions.create(body);
    assert.equal(choices[0].message.tool_calls[0].function.name, "get_weather");
  }
});

test("an answer has the shape of a schema", async () => {
  const body = { ...common, messages: PERSON_QUESTION, response_format: zodResponseFormat(Person, "person") };
  assert.equal((await client.chat.completions.parse(body)).choices[0].message.parsed.age, 36);
  const final = await client.chat.completions.stream(body).finalChatCompletion();
  assert.equal(final.choices[0].message.parsed.age, 36);
});

test("responses are asked, whole and streamed, with tools and schemas", async () => {
  const body = { model: TOOL_MODEL, temperature: 0, max_output_tokens: 96, store: false };
  const whole = await client.responses.create({ ...body, input: GREETING });
  const streamed = await client.responses.stream({ ...body, input: GREETING }).finalResponse();
  assert.ok(whole.output_text.trim());
  assert.equal(streamed.output_text, whole.output_text);
  const tools = [{ type: "function", name: "get_weather", description: DESCRIPTION, parameters: PARAMETERS }];
  const called = await client.responses.create({ ...body, input: WEATHER_QUESTION, tools });
  const call = called.output.find((item) => item.type === "function_call");
  assert.deepEqual(JSON.parse(call.arguments), { city: "Paris" });
  const result = { type: "function_call_output", call_id: call.call_id, output: "19 degrees, sunny" };
  const told = await client.responses.create({ ...body, input: [...WEATHER_QUESTION, ...called.output, result] });
  assert.match(told.output_text, /19/);
  const format = zodTextFormat(Person, "person");
  assert.equal((await client.responses.parse({ ...body, input: PERSON_QUESTION, text: { format } })).output_parsed.age, 36);
});

test("errors are its own", async () => {
  await assert.rejects(client.chat.completions.create({ ...common, model: "absent", messages: GREETING }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.code, "model_not_found");
    assert.ok(error.requestID);
    return true;
  });
  const stranger = new OpenAI({ baseURL: `${MEMRA_URL}/v1`, apiKey: "wrong", maxRetries: 0 });
  await assert.rejects(
    stranger.chat.completions.create({ ...common, messages: GREETING }),
    OpenAI.AuthenticationError,
  );
});
