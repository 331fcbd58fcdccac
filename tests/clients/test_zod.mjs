// Replies held to what zod 4 makes of its types (z.toJSONSchema: what the openai package, the AI SDK and
// LangChain send): every one must be valid for zod itself, and for ajv.
//
// $LACE_SCHEMAS is how many replies (default 240). The model knows no JSON, and the temperature is
// high: what is valid, the grammar has made so. A reply that max_tokens cuts off is asked for again.

import assert from 'node:assert/strict';
import { Ajv2020 } from 'ajv/dist/2020.js';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import * as z from 'zod';
import { dataPath } from '../data.mjs';
import { startServer } from '../serve.mjs';
import { runCases } from '../tap.mjs';

const model = dataPath('models/tales-26m');
const total = Number(process.env.LACE_SCHEMAS || 240);
// Room for tools: where the template has no place for them, their schemas stand in the prompt.
const server = await startServer([...(model ? [model] : []), '-c', '4096']);
const text = z.string().max(12);
const tree = z.object({ v: z.int().min(0).max(9), get kids() { return z.array(tree).max(2); } });

const types = {
  email: z.email().max(40), html5_email: z.email({ pattern: z.regexes.html5Email }).max(40),
  rfc5322_email: z.email({ pattern: z.regexes.rfc5322Email }).max(40),
  old_email: z.email({ pattern: /^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$/ }).max(40),
  uuid: z.uuid(), uuidv4: z.uuidv4(), uuidv7: z.uuidv7(), guid: z.guid(), url: z.url(), nanoid: z.nanoid(), cuid: z.cuid().max(30),
  cuid2: z.cuid2().max(30), ulid: z.ulid(), xid: z.xid(), ksuid: z.ksuid(), ipv4: z.ipv4(), ipv6: z.ipv6(), mac: z.mac(),
  cidrv4: z.cidrv4(), cidrv6: z.cidrv6(), base64: z.base64().max(24), base64url: z.base64url().max(24), e164: z.e164(), jwt: z.jwt(),
  hex: z.hex().max(20), hostname: z.hostname().max(40), sha256: z.hash('sha256'),
  date: z.iso.date(), time: z.iso.time({ precision: 3 }), datetime: z.iso.datetime({ precision: 0 }),
  offset: z.iso.datetime({ offset: true, precision: 3 }), local: z.iso.datetime({ local: true, precision: 0 }), duration: z.iso.duration().max(20),
  starts: z.string().startsWith('ab.c').max(20), ends: z.string().endsWith('x"y').max(20), includes: z.string().includes('mid').max(20),
  both: z.string().startsWith('a').endsWith('z').min(3).max(10), regex: z.string().regex(/^[a-z]+$/).min(2).max(5),
  two: z.string().regex(/a/).regex(/^[a-f]*$/).max(9), lower: z.string().lowercase().max(9), upper: z.string().uppercase().max(9),
  mail_of: z.email().endsWith('@example.com').max(30), own: z.stringFormat('phone', /^\+\d{3,9}$/), length: z.string().length(4),
  template: z.templateLiteral(['a-', z.enum(['x', 'y']), '-', z.uuid()]),
  int: z.int(), int32: z.int32(), uint32: z.uint32(), float32: z.float32(), positive: z.number().int().positive(), between: z.number().gt(5).lt(6),
  record: z.record(z.string().max(5), z.boolean()), record_enum: z.record(z.enum(['a', 'b']), z.int()),
  record_some: z.partialRecord(z.enum(['a', 'b']), z.int()), record_regex: z.record(z.string().regex(/^[a-z]{2}$/), z.boolean()),
  record_uuid: z.record(z.uuid(), z.null()), strict: z.strictObject({ a: text }), loose: z.object({ a: text }).catchall(z.null()),
  tuple: z.tuple([text, z.int()]), tuple_rest: z.tuple([text], z.boolean()), list: z.array(text).min(1).max(3),
  union: z.union([text, z.int(), z.null()]), tagged: z.discriminatedUnion('t', [z.object({ t: z.literal('a'), x: z.int() }), z.object({ t: z.literal('b') })]),
  both_objects: z.intersection(z.object({ a: text }), z.object({ b: z.int() })),
  options: z.object({ a: text.optional(), b: text.nullable(), c: text.default('x'), d: text.nullish(), e: z.never().optional() }),
  literals: z.literal(['a', 1, null, true]), choice: z.enum(['a', 'b']), named: z.object({ a: text.meta({ id: 'foo', title: 't' }) }), tree,
  person: z.object({ name: text, email: z.email().max(30), born: z.iso.date(), id: z.uuid(), tags: z.record(z.string().regex(/^[a-z]{1,4}$/), z.int().max(99)), site: z.url() }),
};
const refused = {
  emoji: [z.emoji(), 'Unicode properties'], multiple: [z.number().multipleOf(5), 'multipleOf'],
  patterns: [z.looseRecord(z.string().regex(/^x/), z.number()), 'patternProperties'],
};

const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: false, unicodeRegExp: false });
const post = (path, body) => fetch(`${server.url}${path}`, {
  method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
});

// Asks until a reply is whole; at most ten times.
async function whole(ask) {
  for (let i = 0; ; i++) {
    const reply = await ask(i);
    if (reply.finish_reason !== 'length' || i === 9) return reply;
  }
}

async function complete(schema, seed) {
  const response = await post('/v1/completions', { prompt: 'Once upon a time', max_tokens: 400, temperature: 1.2, seed, json_schema: schema });
  const reply = await response.json();
  assert.equal(response.status, 200, JSON.stringify(reply));
  return reply.choices[0];
}

await runCases({
  async replies_are_valid_for_zod_and_ajv() {
    const names = Object.keys(types), bad = [];
    let next = 0, cut = 0;
    const worker = async () => {
      while (next < total) {
        const i = next++, name = names[i % names.length], type = types[name];
        const schema = z.toJSONSchema(type, { target: i % 2 ? 'draft-2020-12' : 'draft-7' });
        delete schema.$schema;
        const choice = await whole((k) => complete(schema, i + 100000 * k));
        cut += choice.finish_reason === 'length';
        let why = choice.finish_reason;
        try {
          const value = JSON.parse(choice.text);
          const parsed = type.safeParse(value);
          // A tuple of draft 7 is a list in "items", which ajv's newest draft does not know.
          const isTuple = Array.isArray(schema.items);
          why = !parsed.success ? parsed.error.message : isTuple || ajv.validate(schema, value) ? '' : JSON.stringify(ajv.errors);
        } catch { /* no JSON */ }
        if (why) bad.push(`${name}, ${i}: ${choice.text}: ${why}`);
      }
    };
    await Promise.all(Array.from({ length: 8 }, worker));
    console.log(`# ${total - bad.length} of ${total} replies of ${names.length} types are valid`);
    assert.deepEqual(bad.slice(0, 5), []);
    assert.equal(cut, 0);
  },

  async forced_calls_have_arguments_that_zod_takes() {
    for (const name of ['person', 'old_email', 'duration', 'record_enum', 'tagged', 'tree', 'both', 'hostname']) {
      const type = z.object({ value: types[name] });
      const tool = { type: 'function', function: { name: 'take', parameters: z.toJSONSchema(type) } };
      const choice = await whole(async (seed) => {
        const response = await post('/v1/chat/completions', {
          messages: [{ role: 'user', content: 'Call it.' }], tools: [tool], tool_choice: { type: 'function', function: { name: 'take' } },
          max_tokens: 400, temperature: 1.2, seed,
        });
        const reply = await response.json();
        assert.equal(response.status, 200, `${name}: ${JSON.stringify(reply)}`);
        return reply.choices[0];
      });
      const call = choice.message.tool_calls?.[0];
      assert.equal(call?.function.name, 'take', `${name}: ${JSON.stringify(choice)}`);
      const parsed = type.safeParse(JSON.parse(call.function.arguments));
      assert.ok(parsed.success, `${name}: ${call.function.arguments}: ${parsed.error}`);
    }
  },

  async openais_package_parses_its_own_zod_format() {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none' });
    const type = z.object({ name: z.string().max(10), email: z.email().max(30), at: z.iso.datetime({ precision: 0 }) });
    const choice = await whole(async (seed) => {
      try {
        const reply = await client.chat.completions.parse({
          model: 'default', messages: [{ role: 'user', content: 'Who?' }], max_tokens: 300, temperature: 1.2, seed,
          response_format: zodResponseFormat(type, 'person'),
        });
        return reply.choices[0];
      } catch (error) {
        if (error.name !== 'LengthFinishReasonError' && !/length/.test(error.message)) throw error;
        return { finish_reason: 'length' };
      }
    });
    assert.ok(type.safeParse(choice.message.parsed).success);
  },

  async types_that_cannot_be_held_are_refused_by_name() {
    for (const [name, [type, words]] of Object.entries(refused)) {
      const response = await post('/v1/completions', { prompt: 'a', max_tokens: 1, json_schema: z.toJSONSchema(type) });
      const reply = await response.json();
      assert.equal(response.status, 400, name);
      assert.match(reply.error.message, new RegExp(words));
    }
  },
}, { seconds: 600 });
await server.stop();
