// What messages have besides text: images, thoughts, tool calls, probabilities; and models, and prompts as links. Run
// through test_parts.sh.

import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startServer } from '../serve.mjs';
import { ask, browser, fits, lastAnswer, load, open, PHONE, runPageCases, saved, say, settled } from './page.mjs';

// A picture of a size, as a browser writes it.
async function paint(width, height, type = 'image/png') {
  const page = await browser.newPage();
  const url = await page.evaluate(([w, h, t]) => {
    const canvas = document.createElement('canvas');
    canvas.width = w;
    canvas.height = h;
    const brush = canvas.getContext('2d');
    brush.fillStyle = '#0b7a75';
    brush.fillRect(0, 0, w / 2, h);
    return canvas.toDataURL(t);
  }, [width, height, type]);
  await page.close();
  return Buffer.from(url.split(',')[1], 'base64');
}

// A JPEG with an Exif block behind its first two bytes.
function withExif(jpeg) {
  const block = Buffer.from('Exif\0\0II*\0\x08\0\0\0\0\0', 'latin1');
  return Buffer.concat([jpeg.subarray(0, 2), Buffer.from([0xff, 0xe1, 0, block.length + 2]), block, jpeg.subarray(2)]);
}

function attachImage(page, name, buffer, mimeType = 'image/png') {
  return page.setInputFiles('#attach-file', { name, mimeType, buffer });
}

// The page gets files as by a drop or a paste.
function give(page, how, bytes, name) {
  return page.evaluate(([kind, data, fileName]) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([new Uint8Array(data)], fileName, { type: 'image/png' }));
    const event = kind === 'drop' ? new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true })
      : new ClipboardEvent('paste', { clipboardData: dataTransfer, bubbles: true, cancelable: true });
    (kind === 'drop' ? document.body : document.getElementById('input')).dispatchEvent(event);
  }, [how, [...bytes], name]);
}

async function set(page, name, value) {
  await page.click('#settings-open');
  if (await page.locator(`select#set-${name}`).count()) await page.selectOption(`#set-${name}`, value);
  else await page.fill(`#set-${name}`, value);
  await page.click('#drawer-close');
}

const TOOLS = '[{"name": "get_weather", "parameters": {"type": "object"}}, {"type": "function", "function": {"name": "get_time"}}]';
const showTokens = (page) => page.locator('.answer').last().locator('[aria-label="Probabilities of its tokens"]').click();

const mocked = {
  // ---- Images ----

  async images_are_chosen_dropped_and_pasted_shown_and_sent({ mock }) {
    mock.state.vision = true;
    const page = await open(mock.url);
    assert.equal(await page.getAttribute('#attach', 'aria-label'), 'Attach an image or a text file');
    const png = await paint(60, 40);
    await attachImage(page, 'chosen.png', png);
    await page.waitForSelector('#chips .thumb >> nth=0');
    await give(page, 'drop', png, 'dropped.png');
    await page.waitForSelector('#chips .thumb >> nth=1');
    await give(page, 'paste', png, 'pasted.png');
    await page.waitForSelector('#chips .thumb >> nth=2');
    await page.click('[aria-label="Remove dropped.png"]');
    await page.click('#chips [aria-label="Image chosen.png"]');
    assert.equal(await page.$eval('#file-image img', (img) => img.naturalWidth), 60);
    assert.equal(await page.isVisible('#file-text'), false);
    await page.keyboard.press('Escape');
    await ask(page, 'What is this?');
    const url = `data:image/png;base64,${png.toString('base64')}`;
    const part = { type: 'image_url', image_url: { url } };
    assert.deepEqual(mock.state.bodies[0].messages, [{ role: 'user', content: [part, part, { type: 'text', text: 'What is this?' }] }]);
    assert.equal(await page.locator('#chips .thumb').count(), 0);
    // They are part of the message from now on, also after a reload.
    await page.reload();
    await page.waitForSelector('.user .thumb >> nth=1');
    assert.equal(await page.$eval('.user .thumb img', (img) => img.naturalWidth), 60);
    await ask(page, 'And now?');
    assert.equal(mock.state.bodies[1].messages[0].content.length, 3);
    assert.deepEqual(page.problems, []);
  },

  async image_alone_is_a_message({ mock }) {
    mock.state.vision = true;
    const page = await open(mock.url, PHONE);
    await attachImage(page, 'alone.png', await paint(3000, 40));
    await page.waitForSelector('#chips .thumb');
    assert.ok(await fits(page));
    await page.click('#send');
    await settled(page);
    assert.equal(mock.state.bodies[0].messages[0].content.length, 1);
    assert.equal(await page.inputValue('#title'), 'alone.png');
    assert.ok(await fits(page));
  },

  async large_images_and_those_of_cameras_are_drawn_anew({ mock }) {
    mock.state.vision = true;
    const page = await open(mock.url);
    await attachImage(page, 'large.png', await paint(4000, 1000));
    await page.waitForSelector('#chips .thumb >> nth=0');
    const jpeg = await paint(64, 32, 'image/jpeg');
    await attachImage(page, 'plain.jpg', jpeg, 'image/jpeg');
    await page.waitForSelector('#chips .thumb >> nth=1');
    await attachImage(page, 'camera.jpg', withExif(jpeg), 'image/jpeg');
    await page.waitForSelector('#chips .thumb >> nth=2');
    assert.match(await page.getAttribute('[aria-label="Image large.png"]', 'title'), /2048 × 512/);
    await ask(page, 'look');
    const sent = mock.state.bodies[0].messages[0].content.slice(0, 3).map((part) => Buffer.from(part.image_url.url.split(',')[1], 'base64'));
    assert.equal(sent[0].readUInt32BE(16), 2048); // the width in a PNG
    assert.deepEqual(sent[1], jpeg);
    assert.ok(!sent[2].includes('Exif') && sent[2][0] === 0xff);
  },

  async model_that_does_not_see_says_so({ mock }) {
    const page = await open(mock.url);
    assert.equal(await page.getAttribute('#attach', 'aria-label'), 'Attach a text file');
    await attachImage(page, 'photo.png', await paint(8, 8));
    await page.waitForSelector('#banner:visible');
    assert.equal(await page.textContent('#banner'), 'photo.png was not attached. mock-7b-instruct does not see images.');
    assert.equal(await page.locator('#chips .thumb').count(), 0);
  },

  async file_that_is_no_image_is_refused_by_name({ mock }) {
    mock.state.vision = true;
    const page = await open(mock.url);
    await attachImage(page, 'broken.png', Buffer.from('no image at all'));
    await page.waitForSelector('#banner:visible');
    assert.equal(await page.textContent('#banner'), 'broken.png is not an image that this browser can read.');
    // A drawing in SVG is a text.
    await attachImage(page, 'drawing.svg', Buffer.from('<svg/>'), 'image/svg+xml');
    await page.waitForSelector('#chips .chip');
  },

  async conversation_with_images_is_not_sent_to_a_model_that_does_not_see({ mock }) {
    mock.state.vision = true;
    mock.state.models = [{ id: 'blind', state: 'ready' }, { id: 'sees', state: 'ready' }];
    const page = await open(mock.url);
    await attachImage(page, 'photo.png', await paint(8, 8));
    await page.waitForSelector('#chips .thumb');
    await ask(page, 'look');
    await page.selectOption('#model-choice', 'blind');
    await page.waitForFunction(() => document.getElementById('model').textContent === 'blind');
    await ask(page, 'look again');
    assert.equal(mock.state.bodies.length, 1);
    assert.match(await page.textContent('.answer:last-child .error'), /^blind does not see images\. Choose another model/);
    await page.selectOption('#model-choice', 'sees');
    await page.waitForFunction(() => document.getElementById('model').textContent === 'sees');
    await page.click('.answer:last-child .error button');
    await settled(page);
    assert.equal(mock.state.bodies.length, 2);
  },

  // ---- Thoughts ----

  async thoughts_are_folded_with_the_time_they_took({ mock }) {
    mock.state.delay = 30;
    const page = await open(mock.url);
    await say(page, 'say:thinking');
    await page.waitForSelector('.reasoning.pulse');
    assert.match(await page.textContent('.reasoning summary'), /^Thinking/);
    await settled(page);
    assert.match(await page.textContent('.reasoning summary'), /^Thought for \d/);
    assert.equal(await page.isVisible('.thoughts'), false);
    await page.focus('.reasoning summary');
    await page.keyboard.press('Enter');
    assert.equal(await page.isVisible('.thoughts'), true);
    assert.doesNotMatch(await lastAnswer(page).textContent(), /The user wants/);
  },

  // ---- Tool calls ----

  async tool_calls_are_shown_and_answered({ mock }) {
    const page = await open(mock.url);
    await set(page, 'tools', TOOLS);
    await ask(page, 'say:tools');
    assert.deepEqual(mock.state.bodies[0].tools, [{ type: 'function', function: { name: 'get_weather', parameters: { type: 'object' } } }, { type: 'function', function: { name: 'get_time' } }]);
    assert.equal(await lastAnswer(page).textContent(), 'Let me look.');
    assert.deepEqual(await page.locator('.call-name b').allTextContents(), ['get_weather', 'get_time']);
    assert.equal(await page.textContent('.call-text >> nth=0'), '{\n  "city": "Zürich",\n  "days": [\n    1,\n    2\n  ],\n  "unit": "°C"\n}');
    assert.equal(await page.locator('.call >> nth=1 >> .call-text >> nth=0').textContent(), '{"zone": "Europe/'); // no JSON: as it is
    assert.equal(await page.isVisible('.more'), false);
    await page.fill('[aria-label="Result of get_weather"]', 'sunny');
    // What is written is kept.
    await page.waitForTimeout(700);
    await page.reload();
    await page.waitForSelector('.call-result');
    assert.equal(await page.inputValue('[aria-label="Result of get_weather"]'), 'sunny');
    await page.fill('[aria-label="Result of get_time"]', '12:00');
    await page.click('text=Send the results');
    await settled(page);
    const { messages } = mock.state.bodies[1];
    assert.deepEqual(messages.map((m) => m.role), ['user', 'assistant', 'tool', 'tool']);
    assert.deepEqual(messages[1].tool_calls[0], { id: 'call_0', type: 'function', function: { name: 'get_weather', arguments: '{"city": "Zürich", "days": [1, 2], "unit": "°C"}' } });
    assert.equal(messages[1].reasoning_content, 'I need the weather of two places.');
    assert.deepEqual(messages.slice(2), [{ role: 'tool', tool_call_id: 'call_0', content: 'sunny' }, { role: 'tool', tool_call_id: 'call_1', content: '12:00' }]);
    assert.equal(await lastAnswer(page).textContent(), 'It gave: 12:00');
    assert.equal(await page.isVisible('.call-result'), false);
    assert.equal(await page.locator('.call').nth(0).locator('.call-text').nth(1).textContent(), 'sunny');
    // Another answer to the results, and a message behind it.
    await page.locator('.answer').last().locator('[aria-label="Another answer"]').click();
    await settled(page);
    assert.equal(await page.locator('.answer').last().locator('.branches span').textContent(), '2/2');
    await ask(page, 'thanks');
    assert.deepEqual(mock.state.bodies[3].messages.map((m) => m.role), ['user', 'assistant', 'tool', 'tool', 'assistant', 'user']);
    assert.deepEqual(page.problems, []);
  },

  async call_without_a_result_gets_one_that_says_so({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'say:tools');
    await ask(page, 'never mind');
    assert.deepEqual(mock.state.bodies[1].messages.filter((m) => m.role === 'tool').map((m) => m.content), ['There is no result.', 'There is no result.']);
  },

  async tools_that_are_no_json_are_named({ mock }) {
    const page = await open(mock.url);
    await set(page, 'tools', '[{');
    await ask(page, 'hello');
    assert.match(await page.textContent('.answer .error'), /^The list of tools in the settings is not JSON/);
    assert.equal(mock.state.bodies.length, 0);
  },

  // ---- Probabilities ----

  async probabilities_are_asked_for_only_on_demand({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'hello');
    assert.equal(mock.state.bodies[0].logprobs, undefined);
    assert.equal(await page.isVisible('[aria-label="Probabilities of its tokens"]'), false);
    await set(page, 'tokens', 'on');
    await ask(page, 'hello');
    assert.equal(mock.state.bodies[1].logprobs, true);
    assert.equal(mock.state.bodies[1].top_logprobs, 6);
    await showTokens(page);
    assert.equal(await lastAnswer(page).isVisible(), false);
    assert.equal((await page.locator('.tokens .token').allTextContents()).join(''), 'You wrote: hello');
    await showTokens(page);
    assert.equal(await lastAnswer(page).isVisible(), true);
  },

  async token_shows_its_alternatives_by_mouse_and_keys({ mock }) {
    const page = await open(mock.url);
    await set(page, 'tokens', 'on');
    await ask(page, 'hello there, my friend');
    await showTokens(page);
    const token = page.locator('.tokens .token');
    assert.equal(await token.nth(0).getAttribute('aria-label'), 'You, 97 %');
    await token.nth(1).hover();
    assert.deepEqual(await page.locator('.odds-text').allTextContents(), ['␣wrote:', '␣other', '↵']);
    assert.deepEqual(await page.locator('.odds-share').allTextContents(), ['60 %', '2.0 %', '0.1 %']);
    const bar = await page.$eval('.odds .share', (e) => e.firstChild.getBoundingClientRect().width / e.getBoundingClientRect().width);
    assert.ok(Math.abs(bar - 0.6) < 0.02);
    await page.hover('#input');
    assert.equal(await page.isVisible('.odds'), false);
    // Without a mouse.
    await token.nth(0).focus();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), ' hello');
    assert.match(await page.textContent('.token-view [role=status]'), /^␣hello: 30 %\. Others: ␣other 2\.0 %/);
    await page.keyboard.press('Escape');
    assert.equal(await page.isVisible('.odds'), false);
    await page.keyboard.press('Enter');
    assert.equal(await page.isVisible('.odds'), true);
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.className), 'odds-row');
    assert.deepEqual(page.problems, []);
  },

  async answer_goes_on_from_another_token({ mock }) {
    const page = await open(mock.url);
    await set(page, 'tokens', 'on');
    await ask(page, 'hello');
    await showTokens(page);
    await page.locator('.tokens .token').nth(1).click();
    await page.click('.odds button.odds-row >> text=other');
    await settled(page);
    assert.deepEqual(mock.state.bodies[1].messages.at(-1), { role: 'assistant', content: 'You other' });
    assert.equal(await page.textContent('.answer .branches span'), '2/2');
    assert.equal((await page.locator('.tokens .token').allTextContents()).join(''), 'You other and more');
    await page.click('[aria-label="Previous version"]');
    assert.equal((await page.locator('.tokens .token').allTextContents()).join(''), 'You wrote: hello');
  },

  async letter_that_is_cut_into_tokens_is_whole_again({ mock }) {
    const page = await open(mock.url);
    await set(page, 'tokens', 'on');
    await ask(page, 'say:letters');
    await showTokens(page);
    assert.equal((await page.locator('.tokens .token').allTextContents()).join('').replace(/⋯/g, ''), 'A café with a 🦜 parrot.');
  },

  async probabilities_of_a_text_and_on_the_phone({ mock }) {
    mock.state.hasTemplate = false;
    const page = await open(mock.url, PHONE);
    await set(page, 'tokens', 'on');
    await ask(page, 'once');
    assert.equal(mock.state.bodies[0].logprobs, 6);
    await showTokens(page);
    for (let i = 0; i < 4; i++) {
      await page.locator('.tokens .token').nth(i).tap();
      const box = await page.locator('.odds').boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= 390);
    }
    assert.ok(await fits(page));
  },

  // ---- Files ----

  async file_has_images_thoughts_calls_probabilities_and_the_model({ mock }) {
    mock.state.vision = true;
    mock.state.models = [{ id: 'first', state: 'ready' }, { id: 'second', state: 'ready' }];
    const page = await open(mock.url);
    await page.selectOption('#model-choice', 'first');
    await page.waitForFunction(() => document.getElementById('model').textContent === 'first');
    await set(page, 'tokens', 'on');
    await attachImage(page, 'photo.png', await paint(30, 20));
    await page.waitForSelector('#chips .thumb');
    await ask(page, 'say:tools');
    await page.fill('[aria-label="Result of get_weather"]', 'sunny');
    await page.click('text=Send the results');
    await settled(page);
    const file = await saved(page, '#save-one');
    const nodes = (text) => Object.values(JSON.parse(text).conversations[0].nodes);
    const other = await open(mock.url); // another profile
    await load(other, file.name, file.text);
    await other.click('.entry >> text=say:tools');
    await other.waitForFunction(() => document.getElementById('model-choice').value === 'first');
    assert.equal(await other.$eval('.user .thumb img', (img) => img.naturalWidth), 30);
    assert.match(await other.textContent('.reasoning summary'), /^Thought for/);
    assert.deepEqual(await other.locator('.call-name b').allTextContents(), ['get_weather', 'get_time']);
    assert.equal(await other.locator('.call >> nth=0 >> .call-text >> nth=1').textContent(), 'sunny');
    await showTokens(other);
    assert.equal((await other.locator('.tokens .token').allTextContents()).join(''), 'It gave: There is no result.');
    const again = await saved(other, '#save-one');
    assert.deepEqual(nodes(again.text), nodes(file.text));
    assert.equal(JSON.parse(again.text).conversations[0].model, 'first');
    const markdown = await saved(other, '#save-markdown');
    assert.match(markdown.text, /!\[photo\.png\]\[image-1\]/);
    assert.match(markdown.text, /\n\[image-1\]: data:image\/png;base64,/);
    assert.match(markdown.text, /<summary>Thoughts<\/summary>\n\nI need the weather/);
    assert.match(markdown.text, /Calls `get_weather`\n\n```json\n\{\n {2}"city": "Zürich"/);
  },

  async file_with_strange_parts_is_read_without_them({ mock }) {
    const page = await open(mock.url);
    const node = {
      id: 'a', parent: 'root', role: 'user', content: 'strange',
      files: [{ name: 'x', image: 'https://evil.example/pixel.png' }, { name: 'y', image: 'data:image/svg+xml;base64,AAAA' }, { name: 'z', image: 'data:text/html;base64,AAAA' }],
    };
    const answer = { id: 'b', parent: 'a', role: 'assistant', content: 'yes', tools: [7, { name: { a: 1 }, text: 5 }], tokens: ['x', [1, 2], ['ok', -1, [['no'], 'x', ['alt', -2]]]] };
    const conversation = { id: 'h', title: 'strange', model: 5, nodes: { root: { id: 'root', children: ['a'] }, a: node, b: answer } };
    assert.equal(await load(page, 'x.json', JSON.stringify({ format: 'lace-conversations', version: 1, conversations: [conversation] })), '1 added.');
    await page.click('.entry >> text=strange');
    await page.waitForSelector('.answer');
    assert.equal(await page.locator('img').count(), 0);
    assert.deepEqual(page.requests.filter((url) => !url.startsWith(mock.url)), []);
    await showTokens(page);
    assert.deepEqual(await page.locator('.tokens .token').allTextContents(), ['ok']);
    assert.deepEqual(page.problems, []);
  },

  // ---- Models ----

  async model_belongs_to_its_conversation({ mock }) {
    mock.state.models = [{ id: 'first', state: 'ready' }, { id: 'second', state: 'ready' }];
    const page = await open(mock.url);
    const isUsed = (id) => page.waitForFunction((m) => document.getElementById('model').textContent === m && document.getElementById('model-choice').value === m, id);
    await isUsed('second');
    await ask(page, 'one');
    await page.click('#new');
    await page.selectOption('#model-choice', 'first');
    await isUsed('first');
    await ask(page, 'two');
    await page.click('.entry >> text=one');
    await isUsed('second');
    await ask(page, 'three');
    assert.deepEqual(mock.state.bodies.map((b) => b.model), ['second', 'first', 'second']);
    await page.click('#new'); // begins with the last choice
    await isUsed('first');
    await page.click('.entry >> text=one');
    await page.reload();
    await isUsed('second');
  },

  async model_is_loaded_before_it_is_asked_and_the_page_says_so({ mock }) {
    Object.assign(mock.state, { isStrict: true, hasTemplate: false, loadTime: 1500, models: [{ id: 'other', state: 'unloaded' }, { id: 'teller', state: 'unloaded' }] });
    const page = await open(mock.url);
    await say(page, 'Once upon a time');
    await page.waitForFunction(() => /^teller is /.test(document.querySelector('.waiting:not([hidden]) [role=status]')?.textContent || ''));
    await page.waitForFunction(() => document.querySelector('.waiting:not([hidden]) [role=status]')?.textContent === 'teller is being loaded');
    await settled(page);
    assert.deepEqual(mock.state.loads, ['teller']);
    // It has no template, which is known only then.
    assert.equal(mock.state.bodies[0].prompt, 'Once upon a time');
    assert.deepEqual(page.problems, []);
  },

  // ---- Links ----

  async prompt_is_shared_as_a_link_and_sent_only_if_asked({ mock }) {
    const page = await open(mock.url);
    await set(page, 'system', 'You are brief & kind.');
    await set(page, 'temperature', '0.25');
    await set(page, 'reasoning', 'low');
    await set(page, 'enter', 'send');
    await page.fill('#input', 'Name three rivers,\n#1 + 50% <b>ä</b>');
    await page.click('#export');
    await page.click('#share');
    await page.waitForSelector('#share-link:visible');
    const link = await page.inputValue('#share-link');
    assert.ok(link.startsWith(`${mock.url}/#prompt=Name+three+rivers`));
    const other = await open(link);
    await other.waitForSelector('#choice-dialog[open]');
    assert.equal(await other.inputValue('#input'), 'Name three rivers,\n#1 + 50% <b>ä</b>');
    assert.equal(new URL(other.url()).hash, '');
    const shown = await other.textContent('.shared');
    for (const word of ['You are brief & kind.', 'Temperature', '0.25', 'Reasoning', 'low']) assert.ok(shown.includes(word), word);
    assert.equal(mock.state.bodies.length, 0);
    await other.keyboard.press('Enter'); // what has the focus fills in
    assert.equal(mock.state.bodies.length, 0);
    assert.equal(await other.inputValue('#set-temperature'), '0.25');
    await other.click('#send');
    await settled(other);
    assert.equal(mock.state.bodies[0].temperature, 0.25);
    assert.equal(mock.state.bodies[0].reasoning_effort, 'low');
    assert.deepEqual(mock.state.bodies[0].messages, [{ role: 'system', content: 'You are brief & kind.' }, { role: 'user', content: 'Name three rivers,\n#1 + 50% <b>ä</b>' }]);
    // What is behind the # goes nowhere.
    assert.ok(other.requests.slice(1).every((url) => !url.includes('rivers')));
    assert.deepEqual(other.problems, []);
  },

  async refused_link_leaves_the_page_as_it_was({ mock }) {
    const page = await open(mock.url);
    await set(page, 'temperature', '0.5');
    await page.fill('#input', 'my own words');
    await page.evaluate(() => (location.hash = 'prompt=theirs&system=evil&temperature=2&top_k=9e9&mode=shell&enter=newline&constructor=1'));
    await page.waitForSelector('#choice-dialog[open]');
    assert.equal(await page.inputValue('#input'), 'theirs');
    assert.doesNotMatch(await page.textContent('.shared'), /9e9|shell|newline|constructor/);
    await page.click('#choice-dialog >> text=Cancel');
    assert.equal(await page.inputValue('#input'), 'my own words');
    assert.equal(await page.inputValue('#set-temperature'), '0.5');
    assert.equal(await page.inputValue('#set-system'), '');
    assert.equal(mock.state.bodies.length, 0);
    // The link that skips to the message box is none.
    await page.evaluate(() => (location.hash = 'input'));
    assert.equal(await page.isVisible('#choice-dialog'), false);
    await page.evaluate(() => (location.hash = 'prompt=now'));
    await page.click('#choice-dialog >> text=Send it now');
    await settled(page);
    assert.equal(mock.state.bodies[0].messages[0].content, 'now');
    assert.equal(mock.state.bodies[0].temperature, 0.5);
  },

  async prompt_too_long_for_a_link_is_not_shared({ mock }) {
    const page = await open(mock.url);
    await page.click('#export');
    assert.equal(await page.isDisabled('#share'), true);
    await page.keyboard.press('Escape');
    await page.fill('#input', 'x'.repeat(70000));
    await page.click('#export');
    await page.click('#share');
    await page.waitForSelector('#save-note.bad');
    assert.match(await page.textContent('#save-note'), /too long for a link/);
  },
};

const real = {
  async program_gives_probabilities_of_a_text({ server }) {
    const page = await open(server.url);
    await set(page, 'tokens', 'on');
    await set(page, 'max_tokens', '24');
    await set(page, 'temperature', '0');
    await ask(page, 'Once upon a time there was a café in the');
    const text = await lastAnswer(page).textContent();
    await showTokens(page);
    const tokens = await page.locator('.tokens .token').allTextContents();
    assert.equal(tokens.length, 24);
    assert.equal(tokens.join('').replace(/↵/g, '').replace(/\s+/g, ' ').trim(), text.replace(/\s+/g, ' ').trim());
    await page.locator('.tokens .token').nth(3).click();
    assert.equal(await page.locator('.odds-row').count(), 6);
    // The likeliest was taken.
    assert.equal(await page.locator('.odds li').first().getAttribute('aria-current'), 'true');
    const other = await page.locator('.odds button.odds-row .odds-text').first().textContent();
    await page.locator('.odds button.odds-row').first().click();
    await settled(page);
    assert.equal(await page.textContent('.answer .branches span'), '2/2');
    const branched = await page.locator('.tokens .token').allTextContents();
    assert.deepEqual(branched.slice(0, 3), tokens.slice(0, 3));
    assert.equal(branched[3].trim(), other.replace(/␣/g, '').trim());
    assert.deepEqual(page.problems, []);
  },

  async program_takes_no_image_without_a_vision_tower({ server }) {
    const page = await open(server.url);
    await attachImage(page, 'photo.png', await paint(8, 8));
    await page.waitForSelector('#banner:visible');
    assert.match(await page.textContent('#banner'), /^photo\.png was not attached\. .* does not see images\.$/);
  },

  async program_with_several_models_loads_the_one_of_the_conversation() {
    const dir = mkdtempSync(join(tmpdir(), 'lace-page-'));
    for (const [from, to] of [['default.gguf', 'large.gguf'], ['tales-4m.gguf', 'small.gguf']]) copyFileSync(new URL(`../../models/${from}`, import.meta.url), join(dir, to));
    const server = await startServer(['--models', dir]);
    try {
      const page = await open(server.url);
      await set(page, 'max_tokens', '8');
      const options = () => page.locator('#model-choice option').allTextContents();
      assert.deepEqual(await options(), ['large', 'small']);
      await page.selectOption('#model-choice', 'small');
      await page.waitForFunction(() => document.getElementById('model').textContent === 'small');
      await ask(page, 'Once upon a time');
      assert.equal(await page.locator('.answer .error:visible').count(), 0);
      assert.match(await page.textContent('.answer .stats'), /^8 tokens/);
      assert.match(await page.textContent('#gauge'), /^\d+ of [\d.]+( k)? tokens$/); // its context is known
      await page.waitForFunction(() => document.querySelectorAll('#model-choice option')[1].textContent === 'small (loaded)');
      await page.click('#new');
      await page.selectOption('#model-choice', 'large');
      await page.waitForFunction(() => document.getElementById('model').textContent === 'large');
      await ask(page, 'In the garden');
      assert.equal(await page.locator('.answer .error:visible').count(), 0);
      await page.click('.entry >> text=Once upon a time');
      await page.waitForFunction(() => document.getElementById('model-choice').value === 'small');
      const running = (await (await fetch(`${server.url}/v1/models`)).json()).data.map(({ id, state }) => `${id} ${state}`);
      assert.deepEqual(running.sort(), ['large ready', 'small ready']);
      assert.deepEqual(page.problems, []);
    } finally {
      await server.stop();
      rmSync(dir, { recursive: true });
    }
  },
};

await runPageCases(mocked, real);
