// What can be done with messages: continue, edit, delete, attach; and what the page says of the context and
// the server's settings. Run through test_messages.sh.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startServer } from '../serve.mjs';
import { skip } from '../tap.mjs';
import { ask, lastAnswer, open, runPageCases, say, settled } from './page.mjs';

const shown = (page, text) => page.waitForFunction((t) => (document.querySelector('.answer:last-child .md')?.textContent || '').includes(t), text);
const texts = (page) => page.$$eval('.message', (all) => all.map((m) => m.querySelector('.text').textContent));
const press = (page, nth, label) => page.locator('.message').nth(nth).locator(`[aria-label="${label}"]`).click();

function attach(page, ...files) {
  return page.setInputFiles('#attach-file', files.map(([name, data]) => ({ name, mimeType: 'text/plain', buffer: Buffer.from(data) })));
}

const mocked = {
  // ---- Continue ----

  async cut_answer_is_continued_in_its_place({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'say:cut');
    assert.equal(await lastAnswer(page).textContent(), 'As long as the limit allows');
    await page.click('.more');
    await settled(page);
    assert.equal(await lastAnswer(page).textContent(), 'As long as the limit allows, and the rest after it.');
    assert.equal(await page.locator('.message').count(), 2);
    assert.equal(await page.locator('.branches button').count(), 0);
    assert.deepEqual(mock.state.bodies[1].messages, [{ role: 'user', content: 'say:cut' }, { role: 'assistant', content: 'As long as the limit allows' }]);
    assert.equal(await page.locator('.more').isVisible(), false);
    assert.match(await page.textContent('.answer .stats'), /^12 tokens/); // 6 pieces, and 6 more
  },

  async stopped_answer_is_continued({ mock }) {
    const page = await open(mock.url);
    await say(page, 'say:slow');
    await shown(page, 'This is an');
    await page.click('#send');
    await settled(page);
    const before = await lastAnswer(page).textContent();
    await page.click('.more');
    await shown(page, 'comes so');
    await settled(page);
    const after = await lastAnswer(page).textContent();
    assert.ok(after.startsWith(before));
    assert.match(after, /^This is an answer that comes so slowly.*left of it then\.$/);
  },

  async broken_answer_is_continued_or_tried_again({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'say:ended');
    assert.match(await page.textContent('.error'), /broke off/);
    await page.click('.more');
    await settled(page);
    assert.equal(await lastAnswer(page).textContent(), 'The first half of it, and the second half.');
    assert.equal(await page.locator('.error').isVisible(), false);
  },

  async thoughts_go_along_when_an_answer_is_continued({ mock }) {
    const page = await open(mock.url);
    mock.state.delay = 60;
    await say(page, 'say:thinking');
    await page.waitForFunction(() => /user wants/.test(document.querySelector('.thoughts')?.textContent || ''));
    await page.click('#send');
    await settled(page);
    mock.state.delay = 2;
    await page.click('.more');
    await settled(page);
    assert.match(mock.state.bodies[1].messages.at(-1).reasoning_content, /^The user wants/);
    assert.match(await page.textContent('.thoughts'), /^The user wants a small table\.\nI should compare.*enough\.$/s);
  },

  async complete_answer_offers_no_more_and_a_text_always_does({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'hello');
    assert.equal(await page.locator('.more').isVisible(), false);
    await page.click('#settings-open');
    await page.selectOption('#set-mode', 'text');
    await page.click('.more');
    await settled(page);
    assert.equal(mock.state.bodies[1].prompt, 'helloYou wrote: hello');
    assert.equal(await lastAnswer(page).textContent(), 'You wrote: hello and so it went on.');
  },

  // ---- Edit and delete ----

  async answer_is_edited_in_place_and_can_be_continued({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'hello');
    await press(page, 1, 'Edit');
    await page.fill('.edit', 'I say');
    await page.click('.edit-form >> text=Save');
    assert.deepEqual(await texts(page), ['hello', 'I say']);
    assert.equal(mock.state.bodies.length, 1);
    await page.click('.more');
    await settled(page);
    assert.deepEqual(mock.state.bodies[1].messages.at(-1), { role: 'assistant', content: 'I say' });
    assert.equal(await lastAnswer(page).textContent(), 'I say and more');
  },

  async earlier_message_is_saved_as_it_stands_without_a_new_answer({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'frist');
    await ask(page, 'second');
    await press(page, 0, 'Edit');
    await page.fill('.edit', 'first');
    await page.click('.edit-form >> text=Save');
    assert.deepEqual(await texts(page), ['first', 'You wrote: frist', 'second', 'You wrote: second']);
    assert.equal(mock.state.bodies.length, 2);
    assert.equal(await page.locator('.branches button').count(), 0);
    await ask(page, 'third');
    assert.equal(mock.state.bodies[2].messages[0].content, 'first');
    await page.reload();
    await page.waitForSelector('.answer .md > *');
    assert.equal((await texts(page))[0], 'first');
  },

  async any_message_is_deleted_alone({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'one');
    await ask(page, 'two');
    await press(page, 1, 'Delete');
    await page.click('#choice-dialog >> text=Only this one');
    assert.deepEqual(await texts(page), ['one', 'two', 'You wrote: two']);
    // Templates want the roles in turn: neighbours of one role are sent as one.
    await ask(page, 'three');
    assert.deepEqual(mock.state.bodies[2].messages.map((m) => m.content), ['one\n\ntwo', 'You wrote: two', 'three']);
    await page.reload();
    await page.waitForSelector('.answer .md > *');
    assert.deepEqual(await texts(page), ['one', 'two', 'You wrote: two', 'three', 'You wrote: three']);
  },

  async message_is_deleted_with_all_after_it({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'one');
    await ask(page, 'two');
    await press(page, 2, 'Delete');
    await page.click('#choice-dialog >> text=This and all after it');
    assert.deepEqual(await texts(page), ['one', 'You wrote: one']);
    await press(page, 1, 'Delete');
    await page.click('#choice-dialog >> text=Cancel');
    assert.deepEqual(await texts(page), ['one', 'You wrote: one']);
  },

  async deleted_version_gives_way_to_the_other({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'hello');
    await page.click('[aria-label="Another answer"]');
    await settled(page);
    await press(page, 1, 'Delete');
    await page.click('#choice-dialog .danger');
    assert.equal(await page.locator('.message').count(), 2);
    assert.equal(await page.locator('.branches button').count(), 0);
  },

  // ---- Attachments ----

  async text_files_are_attached_shown_and_sent({ mock }) {
    const page = await open(mock.url);
    await attach(page, ['notes.md', 'a ``` fence\nin it\n'], ['größe.txt', Buffer.from('\ufeffUTF-16', 'utf16le')]);
    await page.waitForSelector('#chips .chip >> nth=1');
    await page.click('#chips .chip-open >> nth=0');
    assert.equal(await page.textContent('#file-text'), 'a ``` fence\nin it\n');
    await page.keyboard.press('Escape');
    await ask(page, 'What is in them?');
    const { content } = mock.state.bodies[0].messages[0];
    assert.equal(content, 'File: notes.md\n````\na ``` fence\nin it\n````\n\nFile: größe.txt\n```\nUTF-16\n```\n\nWhat is in them?');
    assert.equal(await page.locator('.user .chip').count(), 2);
    assert.equal(await page.locator('#chips .chip').count(), 0);
    await page.reload();
    await page.waitForSelector('.user .chip');
    await page.click('.user .chip-open >> nth=1');
    assert.equal(await page.textContent('#file-text'), 'UTF-16');
  },

  async file_alone_is_a_message_and_names_the_conversation({ mock }) {
    const page = await open(mock.url);
    assert.equal(await page.isDisabled('#send'), true);
    await attach(page, ['main.c', 'int main(void) { return 0; }\n']);
    await page.waitForSelector('#chips .chip');
    await page.click('#send');
    await settled(page);
    assert.equal(mock.state.bodies[0].messages[0].content, 'File: main.c\n```\nint main(void) { return 0; }\n```');
    assert.equal(await page.inputValue('#title'), 'main.c');
  },

  async file_that_is_no_text_is_refused_by_name({ mock }) {
    const page = await open(mock.url);
    await attach(page, ['photo.jpg', Buffer.from([0xff, 0xd8, 0xff, 0xe0, 0, 16])], ['ok.txt', 'fine']);
    await page.waitForSelector('#chips .chip');
    assert.match(await page.textContent('#banner'), /photo\.jpg is not a text file/);
    assert.equal(await page.locator('#chips .chip').count(), 1);
    await attach(page, ['latin.txt', Buffer.from([0x67, 0x72, 0xfc, 0xdf])]);
    await page.waitForFunction(() => /latin\.txt is not a text file in UTF-8/.test(document.getElementById('banner').textContent));
    await page.click('[aria-label="Remove ok.txt"]');
    assert.equal(await page.locator('#chips .chip').count(), 0);
  },

  async dropped_file_is_attached({ mock }) {
    const page = await open(mock.url);
    await page.evaluate(() => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File(['dropped text'], 'drop.txt'));
      document.body.dispatchEvent(new DragEvent('dragover', { dataTransfer, bubbles: true, cancelable: true }));
      document.body.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));
    });
    await page.waitForSelector('#chips .chip');
    assert.match(await page.textContent('#chips'), /drop\.txt.*12 B/);
  },

  // ---- What the page says ----

  async gauge_shows_the_servers_count_and_estimates_what_is_new({ mock }) {
    const page = await open(mock.url);
    assert.equal(await page.locator('#gauge').isVisible(), false);
    await ask(page, 'hello there');
    assert.equal(await page.textContent('#gauge'), '44 of 8192 tokens'); // 40 of the prompt and 4 pieces
    assert.equal(await page.getAttribute('#gauge', 'aria-valuenow'), '44');
    await page.fill('#input', 'x'.repeat(360));
    assert.match(await page.textContent('#gauge'), /^about 1\d\d of 8192 tokens$/);
    await attach(page, ['big.txt', 'word '.repeat(20000)]);
    await page.waitForFunction(() => /too long/.test(document.getElementById('gauge').textContent));
    assert.match(await page.getAttribute('#gauge', 'class'), /full/);
    const bar = await page.$eval('.gauge-bar', (e) => e.firstElementChild.getBoundingClientRect().width / e.getBoundingClientRect().width);
    assert.ok(Math.abs(bar - 1) < 0.01);
  },

  async sliders_show_what_the_server_does_unasked({ mock }) {
    const page = await open(mock.url);
    await page.click('#settings-open');
    const field = (name) => page.evaluate((n) => {
      const input = document.getElementById(`set-${n}`);
      return [input.placeholder, input.value, input.parentElement.querySelector('[type=range]').value];
    }, name);
    assert.deepEqual(await field('temperature'), ['auto 0.8', '', '0.8']);
    assert.deepEqual(await field('top_k'), ['auto 40', '', '40']);
    assert.deepEqual(await field('repeat_penalty'), ['auto 1', '', '1']);
    await page.fill('#set-temperature', '1.2');
    await page.press('#set-temperature', 'Tab');
    assert.deepEqual(await field('temperature'), ['auto 0.8', '1.2', '1.2']);
    await page.click('text=Use the server’s own values');
    assert.deepEqual(await field('temperature'), ['auto 0.8', '', '0.8']);
    await page.keyboard.press('Escape');
    await ask(page, 'hello');
    assert.equal(mock.state.bodies[0].temperature, undefined);
  },

  async kv_bar_is_empty_at_nothing_in_use({ mock }) {
    mock.state.kvUsed = 0;
    const page = await open(mock.url);
    await page.click('#live-open');
    await page.waitForFunction(() => /KV cache0%/.test(document.getElementById('pane-live').textContent));
    const filled = () => page.$$eval('.meter span', (all) => all.reduce((sum, e) => sum + e.getBoundingClientRect().width, 0));
    assert.equal(await filled(), 0);
    mock.state.kvUsed = 8192;
    await page.waitForFunction(() => /KV cache50%/.test(document.getElementById('pane-live').textContent));
    await page.waitForFunction(() => {
      const meter = document.querySelector('.meter');
      return Math.abs(meter.firstElementChild.getBoundingClientRect().width / meter.clientWidth - 0.5) < 0.01;
    });
  },

  async titles_are_as_they_were_written({ mock }) {
    const page = await open(mock.url);
    for (const [text, title] of [
      ['my_snake_case in C# > 2 * 3 `code`', 'my_snake_case in C# > 2 * 3 `code`'], ['# A heading\nand more', 'A heading'], ['> quoted', 'quoted'],
      [`${'👩‍👩‍👧 '.repeat(80)}`, `${'👩‍👩‍👧 '.repeat(29)}👩‍👩‍👧…`], ['x'.repeat(100), `${'x'.repeat(60)}…`],
    ]) {
      await page.click('#new');
      await ask(page, text);
      assert.equal(await page.inputValue('#title'), title);
    }
  },

  async system_prompt_follows_its_conversation({ mock }) {
    const page = await open(mock.url);
    await page.click('#settings-open');
    await page.fill('#set-system', 'You are a pirate.');
    await ask(page, 'one');
    assert.match(await page.textContent('#system-line'), /You are a pirate\./);
    await page.click('#new');
    assert.equal(await page.inputValue('#set-system'), '');
    assert.equal(await page.locator('#system-line').isVisible(), false);
    await ask(page, 'two');
    assert.deepEqual(mock.state.bodies[1].messages, [{ role: 'user', content: 'two' }]);
    // Also after the form was reset.
    await page.click('text=Use the server’s own values');
    await page.click('.entry:not(.on) .open');
    assert.equal(await page.inputValue('#set-system'), 'You are a pirate.');
    await page.click('#set-standard');
    await page.click('#new');
    assert.equal(await page.inputValue('#set-system'), 'You are a pirate.');
    await page.fill('#set-system', 'You are a sailor.');
    await page.click('.entry:not(.on) .open >> nth=0');
    await page.click('#new');
    assert.equal(await page.inputValue('#set-system'), 'You are a pirate.');
  },

  async reload_without_cache_stays_the_browsers({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'hello');
    const prevented = (init) => page.evaluate((i) => !document.body.dispatchEvent(new KeyboardEvent('keydown', { bubbles: true, cancelable: true, ...i })), init);
    assert.equal(await prevented({ key: 'R', ctrlKey: true, shiftKey: true }), false);
    assert.equal(await prevented({ key: 'r', ctrlKey: true }), false);
    assert.equal(await page.locator('.streaming').count(), 0);
    assert.equal(mock.state.bodies.length, 1);
    await page.keyboard.press('Control+Shift+Enter');
    await page.waitForSelector('.answer .branches span');
    await settled(page);
    assert.equal(await page.textContent('.answer .branches span'), '2/2');
  },
};

const real = {
  async program_says_what_its_sampler_does_unasked({ server }) {
    const page = await open(server.url);
    await page.click('#settings-open');
    assert.equal(await page.getAttribute('#set-temperature', 'placeholder'), 'auto 0.8');
    assert.equal(await page.getAttribute('#set-top_p', 'placeholder'), 'auto 0.95');
    assert.equal(await page.getAttribute('#set-max_tokens', 'placeholder'), 'auto 400');
  },

  async program_continues_a_cut_text_and_counts_its_context({ server }) {
    const page = await open(server.url);
    await page.click('#settings-open');
    await page.fill('#set-max_tokens', '12');
    await page.fill('#set-temperature', '0');
    await page.press('#set-temperature', 'Tab');
    await ask(page, 'Once upon a time there was a lighthouse');
    const first = await lastAnswer(page).textContent();
    assert.match(await page.textContent('.answer .stats'), /^12 tokens.*cut at the limit/);
    assert.match(await page.textContent('#gauge'), /^\d+ of [\d.]+( k)? tokens$/);
    await page.click('.more');
    await settled(page);
    const both = await lastAnswer(page).textContent();
    assert.ok(both.startsWith(first.trimEnd()) && both.length > first.length + 10, both);
    assert.match(await page.textContent('.answer .stats'), /^24 tokens/);
  },
};

const TEMPLATE = '{{ bos_token }}{% for m in messages %}{{ m.content }}\n\n{% endfor %}{% if add_generation_prompt %}{% endif %}';

// A server whose model has a chat template.
real.program_continues_a_chat_answer_as_if_it_had_not_been_cut = async () => {
  const dir = mkdtempSync(join(tmpdir(), 'lace-page-'));
  writeFileSync(join(dir, 'plain.jinja'), TEMPLATE);
  const server = await startServer(['--deterministic', '--chat-template-file', join(dir, 'plain.jinja')]);
  try {
    const known = await fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST', headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ continue_final_message: true, max_tokens: 1, messages: [{ role: 'user', content: 'a' }, { role: 'assistant', content: 'b' }] }),
    });
    if (!known.ok) skip('this lace does not continue messages');
    const page = await open(server.url);
    await page.click('#settings-open');
    await page.selectOption('#set-mode', 'chat');
    await page.fill('#set-temperature', '0');
    const write = async (n) => {
      await page.fill('#set-max_tokens', String(n));
      await page.press('#set-max_tokens', 'Tab');
    };
    await write(24);
    await ask(page, 'Once upon a time there was a king who had three sons');
    const whole = await lastAnswer(page).textContent();
    await page.click('#new');
    await write(12);
    await ask(page, 'Once upon a time there was a king who had three sons');
    const cut = await lastAnswer(page).textContent();
    assert.ok(whole.startsWith(cut.trimEnd()), `${whole}\n${cut}`);
    await page.click('.more');
    await settled(page);
    assert.equal(await lastAnswer(page).textContent(), whole);
    assert.match(await page.textContent('.answer .stats'), /^24 tokens/);
  } finally {
    await server.stop();
    rmSync(dir, { recursive: true });
  }
};

await runPageCases(mocked, real);
