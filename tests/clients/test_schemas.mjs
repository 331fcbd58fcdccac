// Replies that are held to 30 JSON schemas, validated by ajv: all of them must be valid.
//
// $LACE_SCHEMAS is how many replies (default 300). The model is tales-26m where the test data beside the checkout
// has it, else the one inside the program. It knows no JSON, and the temperature is high: what is
// valid, the grammar has made so. A reply that max_tokens cuts off is no valid text, so schemas that
// allow endless ones are asked for with room, and a cut reply is asked for again with another seed.

import assert from 'node:assert/strict';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { dataPath } from '../data.mjs';
import { startServer } from '../serve.mjs';
import { runCases } from '../tap.mjs';

const model = dataPath('models/tales-26m');
const total = Number(process.env.LACE_SCHEMAS || 300);
const server = await startServer([...(model ? [model] : []), '-c', '1024']);

const text = { type: 'string', maxLength: 30 };
const closed = (properties, required = Object.keys(properties)) => ({ type: 'object', properties, required, additionalProperties: false });

const schemas = [
  closed({ name: text, age: { type: 'integer', minimum: 0, maximum: 120 } }),
  closed({ a: { type: 'boolean' }, b: { type: 'null' }, c: { enum: ['red', 'green', 3, null] } }),
  closed({ x: { type: 'number', minimum: -1, maximum: 1 }, y: { type: 'number', exclusiveMinimum: 0, exclusiveMaximum: 100 } }),
  { type: 'array', items: { type: 'integer', minimum: 1, maximum: 6 }, minItems: 2, maxItems: 5 },
  { type: 'array', items: text, maxItems: 3 },
  { type: 'array', prefixItems: [text, { type: 'integer' }, { type: 'boolean' }], items: false, minItems: 3, maxItems: 3 },
  closed({ id: { type: 'string', pattern: '^[A-Z]{3}-[0-9]{4}$' } }),
  closed({ slug: { type: 'string', pattern: '^[a-z]+(-[a-z]+){0,3}$' } }),
  closed({ word: { type: 'string', pattern: '[aeiou]' } }),
  closed({ day: { type: 'string', format: 'date' }, at: { type: 'string', format: 'date-time' }, time: { type: 'string', format: 'time' } }),
  closed({ id: { type: 'string', format: 'uuid' }, mail: { type: 'string', format: 'email' }, host: { type: 'string', format: 'ipv4' } }),
  closed({ first: text, second: text, third: text }, ['second']),
  closed({ first: text, second: text }, []),
  { type: 'object', properties: { name: text }, required: ['name'], additionalProperties: { type: 'integer' }, maxProperties: undefined },
  { type: 'object', additionalProperties: { type: 'boolean' }, minProperties: 1, maxProperties: 3 },
  closed({ person: closed({ name: text, home: closed({ city: text, zip: { type: 'string', pattern: '^\\d{5}$' } }) }) }),
  closed({ list: { type: 'array', items: closed({ k: text, v: { type: 'number' } }), minItems: 1, maxItems: 3 } }),
  { anyOf: [{ type: 'integer' }, text, { type: 'null' }] },
  { oneOf: [closed({ kind: { const: 'circle' }, r: { type: 'number', minimum: 0 } }), closed({ kind: { const: 'square' }, side: { type: 'number', minimum: 0 } })] },
  { oneOf: [text, { type: 'integer' }, { type: 'boolean' }] },
  { allOf: [{ type: 'object', properties: { a: { type: 'integer', minimum: 3 } }, required: ['a'] }, { properties: { a: { maximum: 9 }, b: text }, required: ['b'] }] },
  { type: 'object', properties: { k: text }, required: ['k'], anyOf: [{ properties: { x: { type: 'integer' } }, required: ['x'] }, { properties: { y: { type: 'boolean' } }, required: ['y'] }] },
  { $defs: { point: closed({ x: { type: 'integer' }, y: { type: 'integer' } }) }, type: 'array', items: { $ref: '#/$defs/point' }, minItems: 1, maxItems: 2 },
  { $defs: { tree: closed({ v: { type: 'integer', minimum: 0, maximum: 9 }, kids: { type: 'array', items: { $ref: '#/$defs/tree' }, maxItems: 2 } }) }, $ref: '#/$defs/tree' },
  closed({ value: { type: ['string', 'null'], maxLength: 10 }, n: { type: ['integer', 'boolean'] } }),
  closed({ short: { type: 'string', minLength: 1, maxLength: 3 }, long: { type: 'string', minLength: 20, maxLength: 40 } }),
  closed({ low: { type: 'integer', maximum: -10, minimum: -1000 }, odd: { type: 'integer', minimum: 17, maximum: 23 }, big: { type: 'integer', exclusiveMinimum: 99999 } }),
  closed({ p: { type: 'number', minimum: 0.25, maximum: 0.75 }, q: { type: 'number', minimum: -2.5, exclusiveMaximum: -0.125 }, r: { type: 'number', minimum: 1234.5 } }),
  { enum: ['yes', 'no', { deep: [1, 2] }] },
  closed({ 'a "quoted" key': { const: 'x\ny' }, 'größe': { type: 'integer' }, '': { type: 'null' } }),
];

// Formats, checked in other words than the grammar's.
const ajv = new Ajv2020({ strict: false, allErrors: true });
const isDate = (s) => /^\d{4}-\d\d-\d\d$/.test(s) && new Date(`${s}T00:00:00Z`).toISOString().startsWith(s);
const isTime = (s) => /^\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(s) && !Number.isNaN(Date.parse(`2000-01-01T${s}`));
ajv.addFormat('date', isDate);
ajv.addFormat('time', isTime);
ajv.addFormat('date-time', (s) => s[10] === 'T' && isDate(s.slice(0, 10)) && isTime(s.slice(11)));
ajv.addFormat('uuid', /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i);
ajv.addFormat('email', /^[^@\s]+@[^@\s.]+(\.[^@\s.]+)+$/);
ajv.addFormat('ipv4', (s) => s.split('.').length === 4 && s.split('.').every((n) => String(Number(n)) === n && Number(n) < 256));

async function ask(schema, seed) {
  const response = await fetch(`${server.url}/v1/completions`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ prompt: 'Once upon a time there was', max_tokens: 400, temperature: 1.2, seed, json_schema: schema }),
  });
  const reply = await response.json();
  assert.equal(response.status, 200, JSON.stringify(reply));
  return reply.choices[0];
}

await runCases({
  async all_replies_are_valid() {
    const checks = schemas.map((schema) => ajv.compile(schema));
    assert.equal(schemas.length, 30);
    let next = 0, valid = 0, cut = 0;
    const bad = [];
    const worker = async () => {
      while (next < total) {
        const i = next++;
        let choice, tries = 0;
        do {
          choice = await ask(schemas[i % 30], i + 100000 * tries);
          cut += choice.finish_reason === 'length';
        } while (choice.finish_reason === 'length' && ++tries < 10);
        let ok = false;
        try {
          ok = checks[i % 30](JSON.parse(choice.text));
        } catch { /* no JSON */ }
        if (ok) valid++;
        else bad.push(`schema ${i % 30}, seed ${i}, ${choice.finish_reason}: ${choice.text} ${JSON.stringify(checks[i % 30].errors)}`);
      }
    };
    await Promise.all(Array.from({ length: 8 }, worker));
    console.log(`# ${valid} of ${total} valid; ${cut} were cut off by max_tokens and asked for again`);
    assert.deepEqual(bad.slice(0, 5), []);
    assert.equal(valid, total);
  },
}, { seconds: 900 });
await server.stop();
