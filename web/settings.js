// The settings: a table of fields, the form made of it, and the body of a request made of both.

import { el } from './dom.js';
import { load, save } from './store.js';

// name: as the API calls it. Fields left empty are not sent, so the server's own values hold.
const FIELDS = [
  { name: 'temperature', label: 'Temperature', help: 'Higher is more daring; 0 always takes the likeliest token.', min: 0, max: 2, step: 0.05, hint: 'auto' },
  { name: 'top_p', label: 'Top p', help: 'Keep the likeliest tokens that sum up to this.', min: 0.01, max: 1, step: 0.01, hint: 'auto' },
  { name: 'top_k', label: 'Top k', help: 'Keep this many of the likeliest; 0 keeps all.', min: 0, max: 200, step: 1, hint: 'auto' },
  { name: 'min_p', label: 'Min p', help: 'Keep tokens with this share of the best one’s probability.', min: 0, max: 1, step: 0.01, hint: 'auto' },
  { name: 'repeat_penalty', label: 'Repeat penalty', help: 'Above 1: words that were just used become less likely.', min: 0.5, max: 2, step: 0.01, hint: 'auto' },
  { name: 'max_tokens', label: 'Longest answer', help: 'In tokens.', min: 1, max: 1000000, step: 1, hint: 'no limit', isPlain: true },
  { name: 'seed', label: 'Seed', help: 'The same seed gives the same answer.', min: 0, max: 4294967295, step: 1, hint: 'random', isPlain: true },
];

// What is chosen from: [label, help, [[value, text]]].
const CHOICES = {
  mode: ['Mode', 'A model without a chat template can only continue a text.', [['auto', 'As the model can'], ['chat', 'Chat'], ['text', 'Continue the text']]],
  reasoning: ['Reasoning', 'For models that think before they answer.', [['', 'As the model does'], ['off', 'Off'], ['low', 'Little'], ['medium', 'Some'], ['high', 'Much']]],
  format: ['Format', '', [['text', 'Text'], ['json_object', 'Any JSON'], ['json_schema', 'JSON by a schema']]],
  tokens: ['Probabilities', 'Asks for the probability of every token and of its alternatives; a button below each answer shows them.', [['off', 'Off'], ['on', 'On']]],
  enter: ['Enter', '', [['send', 'sends'], ['newline', 'starts a line; Ctrl Enter sends']]],
};
const TEXTS = ['stop', 'schema', 'tools'];

const EMPTY = { stop: '', format: 'text', schema: '', tools: '', reasoning: '', mode: 'auto', tokens: 'off', enter: 'send' };
const OF_THE_PAGE = ['tokens', 'enter']; // no part of a request that is shared

// hooks: {onSystem(text), onStandard(text), onChange(values)}
export function createSettings(form, { onSystem, onStandard, onChange }) {
  const values = settingsValues();
  const fills = []; // each shows the value of one field
  let defaults = {}; // what the server does where nothing is sent
  const fillAll = () => fills.forEach((fill) => fill());
  const keep = () => {
    save('settings', values);
    onChange(values);
  };

  function number(field) {
    const input = el('input', { type: 'number', id: `set-${field.name}`, min: field.min, max: field.max, step: field.step, inputmode: 'decimal' });
    const range = field.isPlain ? null : el('input', { type: 'range', min: field.min, max: field.max, step: field.step, 'aria-label': `${field.label}, slider` });
    const fill = () => {
      const own = defaults[field.name];
      const isSet = values[field.name] !== undefined;
      input.value = values[field.name] ?? '';
      input.placeholder = own === undefined ? field.hint : `auto ${own}`;
      if (!range) return;
      range.value = isSet ? values[field.name] : own ?? (field.min + field.max) / 2;
      range.classList.toggle('unset', !isSet);
      range.setAttribute('aria-valuetext', isSet ? String(values[field.name]) : input.placeholder);
    };
    const set = (text) => {
      const x = text === '' ? undefined : Math.min(field.max, Math.max(field.min, Number(text)));
      if (x === undefined || Number.isNaN(x)) delete values[field.name];
      else values[field.name] = x;
      fill();
      keep();
    };
    input.addEventListener('change', () => set(input.value));
    if (range) range.addEventListener('input', () => set(range.value));
    fills.push(fill);
    return el('div', { class: range ? 'field' : 'field inline' },
      el('label', { for: input.id }, field.label), input, ...(range ? [range] : []), el('small', {}, field.help));
  }

  function choice(name) {
    const [label, help, pairs] = CHOICES[name];
    const select = el('select', { id: `set-${name}` }, ...pairs.map(([value, text]) => el('option', { value }, text)));
    select.addEventListener('change', () => {
      values[name] = select.value;
      keep();
      hide();
    });
    fills.push(() => (select.value = values[name]));
    return el('div', { class: 'field inline' }, el('label', { for: select.id }, label), select, el('small', {}, help));
  }

  function lines(name, label, help, placeholder) {
    const area = el('textarea', { id: `set-${name}`, rows: 3, placeholder, spellcheck: 'false' });
    area.addEventListener('input', () => {
      values[name] = area.value;
      keep();
    });
    fills.push(() => (area.value = values[name]));
    return el('div', { class: 'field wide', id: `field-${name}` }, el('label', { for: area.id }, label), area, el('small', {}, help));
  }

  const system = el('textarea', { id: 'set-system', rows: 4, placeholder: 'You are …' });
  const standard = el('button', { type: 'button', class: 'link', id: 'set-standard' }, 'Begin new conversations with it');
  const drawStandard = () => {
    standard.hidden = system.value === load('system', '');
    standard.textContent = system.value === '' ? 'Begin new conversations without one' : 'Begin new conversations with it';
  };
  system.addEventListener('input', () => {
    onSystem(system.value);
    drawStandard();
  });
  standard.addEventListener('click', () => {
    onStandard(system.value);
    drawStandard();
    system.focus();
  });
  const schema = lines('schema', 'JSON schema', 'The answer will be valid against it.', '{"type": "object", …}');
  const hide = () => (schema.hidden = values.format !== 'json_schema');
  fills.push(hide);
  const reset = el('button', { type: 'button', class: 'plain' }, 'Use the server’s own values');

  form.append(
    el('div', { class: 'field wide' }, el('label', { for: 'set-system' }, 'System prompt'), system, el('small', {}, 'Of this conversation. ', standard)),
    el('h2', {}, 'Choice of words'), ...FIELDS.map(number),
    el('h2', {}, 'Answer'),
    choice('mode'), choice('reasoning'), choice('format'), schema,
    lines('tools', 'Tools', 'A JSON list of functions that the model may call. Calls are shown; you write their results.', '[{"name": …, "description": …, "parameters": {…}}]'),
    lines('stop', 'Stop at', 'One text a line; the answer ends before it.', ''),
    el('h2', {}, 'Page'),
    choice('tokens'), choice('enter'), reset);
  reset.addEventListener('click', () => {
    for (const key of Object.keys(values)) delete values[key];
    Object.assign(values, EMPTY);
    keep();
    fillAll();
    form.querySelector('#set-temperature').focus();
  });
  fillAll();

  return {
    showSystem(text) {
      if (system.value !== text) system.value = text;
      drawStandard();
    },
    // What the server does unasked: {temperature: 0.8, ...}.
    showDefaults(all) {
      defaults = all;
      fillAll();
    },
    // Takes over what a link brought.
    take(some) {
      for (const key of Object.keys(values)) if (!OF_THE_PAGE.includes(key)) delete values[key];
      Object.assign(values, { ...EMPTY, ...pick(values, OF_THE_PAGE), ...some });
      keep();
      fillAll();
    },
  };
}

const pick = (all, names) => Object.fromEntries(names.map((name) => [name, all[name]]));

// ---- Links -------------------------------------------------------------------------------------

// What was changed and speaks to the model: {name: text}.
export function changedSettings() {
  const changed = Object.entries(settingsValues()).filter(([name, value]) => !OF_THE_PAGE.includes(name) && value !== undefined && value !== EMPTY[name]);
  return Object.fromEntries(changed.map(([name, value]) => [name, String(value)]));
}

// The same from a stranger: what this page knows, and values that it could have set itself.
export function readSettings(all) {
  const known = {};
  for (const [name, text] of Object.entries(all)) {
    const field = FIELDS.find((f) => f.name === name);
    const x = Number(text);
    if (OF_THE_PAGE.includes(name)) continue;
    if (field && text.trim() !== '' && x >= field.min && x <= field.max) known[name] = x;
    else if (TEXTS.includes(name)) known[name] = text;
    else if (Object.hasOwn(CHOICES, name) && CHOICES[name][2].some(([value]) => value === text)) known[name] = text;
  }
  return known;
}

// Names as the form has them.
export function settingLabel(name) {
  const labels = { stop: 'Stop at', schema: 'JSON schema', tools: 'Tools' };
  return FIELDS.find((f) => f.name === name)?.label || CHOICES[name]?.[0] || labels[name];
}

// ---- Requests ----------------------------------------------------------------------------------

function parse(what, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} in the settings is not JSON: ${error.message}`);
  }
}

// Functions alone, or as OpenAI's API has them.
function readTools(text) {
  const list = parse('The list of tools', text);
  if (!Array.isArray(list)) throw new Error('The tools in the settings are not a JSON list.');
  return list.map((tool) => (tool?.function ? tool : { type: 'function', function: tool }));
}

// What the settings add to a request.
export function requestFields() {
  const values = settingsValues();
  const body = {};
  for (const { name } of FIELDS) if (values[name] !== undefined && values[name] !== null) body[name] = values[name];
  const stop = values.stop.split('\n').filter((s) => s !== '');
  if (stop.length > 0) body.stop = stop;
  if (values.format === 'json_object') body.response_format = { type: 'json_object' };
  if (values.format === 'json_schema' && values.schema.trim()) {
    body.response_format = { type: 'json_schema', json_schema: { name: 'answer', strict: true, schema: parse('The JSON schema', values.schema) } };
  }
  if (values.reasoning === 'off') body.chat_template_kwargs = { enable_thinking: false };
  else if (values.reasoning) body.reasoning_effort = values.reasoning;
  if (values.tools.trim()) body.tools = readTools(values.tools);
  body.wantsTokens = values.tokens === 'on'; // what that is called depends on the route
  return body;
}

export function settingsValues() {
  return { ...EMPTY, ...load('settings', {}) };
}
