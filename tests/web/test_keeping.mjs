// What the page keeps: across reloads, between tabs, and in files. Run through test_keeping.sh.

import assert from 'node:assert/strict';
import { ask, lastAnswer, load, open, PHONE, runPageCases, saved, say, settled } from './page.mjs';

const texts = (page) => page.$$eval('.message', (all) => all.map((m) => m.querySelector('.text').textContent));
const shown = (page, text) => page.waitForFunction((t) => (document.querySelector('.answer:last-child .md')?.textContent || '').includes(t), text);

// Another tab of the same browser.
async function openTab(page) {
  const tab = await page.context().newPage();
  await tab.goto(page.url());
  await tab.waitForFunction(() => document.getElementById('model').textContent !== '');
  return tab;
}

const mocked = {
  // ---- Reload ----

  async reload_in_the_middle_of_a_stream_keeps_every_word_and_goes_on({ mock }) {
    const page = await open(mock.url);
    mock.state.delay = 1;
    await say(page, 'say:long');
    await shown(page, 'word120');
    // Everything that was in sight when the page went, whenever it was last written.
    await page.evaluate(() => addEventListener('pagehide', () => {
      sessionStorage.setItem('test.seen', document.querySelector('.answer .md').textContent);
    }));
    await page.reload();
    await page.waitForSelector('.answer .md > *');
    const seen = await page.evaluate(() => sessionStorage.getItem('test.seen'));
    const kept = await lastAnswer(page).textContent();
    assert.ok(seen.includes('word120'));
    assert.ok(kept.startsWith(seen), `kept ${kept.length} of ${seen.length} characters`);
    assert.match(await page.textContent('.answer .stats'), /broken off/);
    assert.equal(await page.locator('.error').isVisible(), false);
    await page.click('.more');
    await settled(page);
    assert.equal(await lastAnswer(page).textContent(), Array.from({ length: 400 }, (_, i) => `word${i}`).join(' '));
    assert.equal(mock.state.bodies[1].messages.at(-1).content, kept);
    assert.equal(await page.evaluate(() => Object.keys(localStorage).filter((k) => k.startsWith('lace.unsaved')).length), 0);
  },

  // Its texts are more than localStorage takes.
  async reload_keeps_every_word_of_a_large_conversation({ mock }) {
    const page = await open(mock.url);
    mock.state.delay = 1;
    const large = (name) => ({ name, mimeType: 'text/plain', buffer: Buffer.alloc(3 << 20, 'text ') });
    await page.setInputFiles('#attach-file', [large('a.txt'), large('b.txt')]);
    await page.waitForSelector('#chips .chip >> nth=1');
    await page.fill('#input', 'two files');
    await page.press('#input', 'Enter');
    await page.waitForSelector('.answer');
    await page.click('#send');
    await settled(page);
    await say(page, 'say:long');
    await shown(page, 'word60');
    await page.evaluate(() => addEventListener('pagehide', () => {
      sessionStorage.setItem('test.seen', document.querySelector('.answer:last-child .md').textContent);
    }));
    await page.reload();
    await shown(page, 'word60');
    assert.ok((await lastAnswer(page).textContent()).startsWith(await page.evaluate(() => sessionStorage.getItem('test.seen'))));
    assert.equal(await page.locator('.user .chip').count(), 2);
    assert.match(await page.textContent('.user .chip >> nth=1'), /3\.1 MB/);
  },

  async reload_keeps_what_is_being_written_and_attached({ mock }) {
    const page = await open(mock.url);
    await page.fill('#input', 'half a thought');
    await page.setInputFiles('#attach-file', { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('text') });
    await page.waitForSelector('#chips .chip');
    await page.reload();
    await page.waitForSelector('#chips .chip');
    assert.equal(await page.inputValue('#input'), 'half a thought');
    await page.press('#input', 'Enter');
    await settled(page);
    assert.match(mock.state.bodies[0].messages[0].content, /^File: a\.txt/);
    await page.reload();
    await page.waitForSelector('.answer .md > *');
    assert.equal(await page.inputValue('#input'), '');
  },

  async conversation_of_an_older_page_is_read({ mock }) {
    const page = await open(mock.url);
    await page.evaluate(() => new Promise((resolve) => {
      const opening = indexedDB.open('lace', 1);
      opening.onsuccess = () => {
        const node = (id, parent, role, content, children, pick) => ({ id, parent, role, content, reasoning: '', children, pick, meta: null, error: null });
        const put = opening.result.transaction('conversations', 'readwrite').objectStore('conversations').put({
          id: 'old', title: 'Old', named: false, system: 'Be old.', created: 1, updated: Date.now() + 1000,
          nodes: { root: node('root', null, 'root', '', ['a'], 0), a: node('a', 'root', 'user', 'question', ['b', 'c'], 0), b: node('b', 'a', 'assistant', 'shown', [], 0), c: node('c', 'a', 'assistant', 'other', [], 0) },
        });
        put.onsuccess = () => {
          localStorage.setItem('lace.current', '"old"');
          sessionStorage.clear();
          resolve();
        };
      };
    }));
    await page.reload();
    await page.waitForSelector('.answer .md > *');
    assert.deepEqual(await texts(page), ['question', 'shown']);
    assert.equal(await page.textContent('.answer .branches span'), '1/2');
  },

  // ---- Tabs ----

  async message_in_one_tab_appears_in_the_other({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'from the first');
    const tab = await openTab(page);
    await ask(tab, 'from the second');
    await page.waitForFunction(() => document.querySelectorAll('.message').length === 4);
    await settled(page);
    assert.deepEqual(await texts(page), await texts(tab));
    await ask(page, 'and again');
    await tab.waitForFunction(() => document.querySelectorAll('.message').length === 6);
    assert.equal(mock.state.bodies[2].messages.length, 5);
  },

  async answer_that_streams_in_one_tab_is_seen_and_stopped_in_the_other({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'hello');
    const tab = await openTab(page);
    await say(page, 'say:long');
    await tab.waitForFunction(() => /word/.test(document.querySelector('.answer.streaming .md')?.textContent || ''));
    assert.equal(await tab.getAttribute('#send', 'aria-label'), 'Stop');
    await tab.click('#send');
    await settled(page);
    await settled(tab);
    assert.match(await page.textContent('.answer:last-child .stats'), /stopped/);
    await tab.waitForFunction((text) => document.querySelector('.answer:last-child .md').textContent === text, await lastAnswer(page).textContent());
    await tab.locator('.answer').last().locator('.more').waitFor();
  },

  // Both write into the conversation without hearing of each other: nothing is lost, what collides is a version.
  async tabs_that_do_not_hear_each_other_lose_no_message({ mock }) {
    const page = await open(mock.url);
    await page.context().addInitScript(() => {
      window.BroadcastChannel = class { constructor() { throw new Error('none'); } };
    });
    await page.reload();
    await page.waitForFunction(() => document.getElementById('model').textContent !== '');
    await ask(page, 'start');
    const tab = await openTab(page);
    await ask(page, 'from the first');
    await ask(tab, 'from the second');
    await ask(page, 'and again');
    await tab.reload();
    await tab.waitForSelector('.answer .md > *');
    assert.equal(await tab.textContent('.user >> nth=1 >> .branches span'), '2/2');
    const all = new Set(await texts(tab));
    await tab.click('.user >> nth=1 >> [aria-label="Previous version"]');
    for (const text of await texts(tab)) all.add(text);
    assert.deepEqual([...all].sort(), ['You wrote: and again', 'You wrote: from the first', 'You wrote: from the second', 'You wrote: start', 'and again', 'from the first', 'from the second', 'start']);
  },

  async deleting_in_one_tab_holds_in_the_other({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'one');
    await ask(page, 'two');
    const tab = await openTab(page);
    await page.locator('.message').nth(1).locator('[aria-label="Delete"]').click();
    await page.click('#choice-dialog >> text=Only this one');
    await tab.waitForFunction(() => document.querySelectorAll('.message').length === 3);
    await ask(tab, 'three');
    await page.waitForFunction(() => document.querySelectorAll('.message').length === 5);
    assert.deepEqual(await texts(page), ['one', 'two', 'You wrote: two', 'three', 'You wrote: three']);
    await page.click('.entry.on .remove');
    await page.click('#choice-dialog .danger');
    await tab.waitForSelector('.welcome');
    await tab.reload();
    await tab.waitForSelector('.welcome');
  },

  async merging_takes_the_later_state_of_each_part({ mock }) {
    const page = await open(mock.url);
    const result = await page.evaluate(async () => {
      const t = await import('/tree.js');
      const base = t.newConversation('');
      const user = t.addNode(base, 'root', 'user', 'question');
      const answer = t.addNode(base, user.id, 'assistant', 'short');
      const [a, b] = [structuredClone(base), structuredClone(base)];
      // One deletes the question and keeps what follows; the other writes below the answer and changes it.
      t.removeNode(a, a.nodes[user.id], false);
      b.nodes[answer.id].content = 'longer';
      b.nodes[answer.id].at = t.stamp();
      t.addNode(b, answer.id, 'user', 'next');
      a.title = 'named';
      a.titled = t.stamp();
      b.system = 'You are b.';
      b.systemSet = t.stamp();
      const [ab, ba] = [structuredClone(a), structuredClone(b)];
      t.mergeInto(ab, structuredClone(b));
      t.mergeInto(ba, structuredClone(a));
      const read = (c) => [c.title, c.system, ...t.shownPath(c).map((n) => n.content)];
      return [read(ab), read(ba), read(t.readConversation(JSON.parse(JSON.stringify(ab))))];
    });
    for (const state of result) assert.deepEqual(state, ['named', 'You are b.', 'longer', 'next']);
  },

  // ---- Files ----

  async all_conversations_are_saved_and_loaded_elsewhere({ mock }) {
    const page = await open(mock.url);
    await page.click('#settings-open');
    await page.fill('#set-system', 'You are brief.');
    await page.keyboard.press('Escape');
    await ask(page, 'about apples');
    await page.click('[aria-label="Another answer"]');
    await settled(page);
    await page.click('#new');
    await ask(page, 'about pears');
    const file = await saved(page, '#save-all');
    assert.match(file.name, /^lace conversations \d{4}-\d\d-\d\d\.json$/);
    const other = await open(mock.url); // another profile
    assert.equal(await load(other, file.name, file.text), '2 added.');
    assert.equal(await other.locator('.entry').count(), 3); // and the empty one
    await other.click('.entry >> text=about apples');
    assert.equal(await other.textContent('.answer .branches span'), '2/2');
    assert.match(await other.textContent('#system-line'), /You are brief\./);
    await other.reload();
    await other.waitForSelector('.answer .md > *');
    assert.equal(await other.locator('.entry').count(), 2);
    assert.equal(await load(other, file.name, file.text), '0 added, 2 already here and completed.');
    assert.equal(await other.locator('.entry').count(), 2);
  },

  async loading_brings_back_what_was_deleted_and_overwrites_nothing({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'one');
    const file = await saved(page, '#save-one');
    assert.equal(file.name, 'one.json');
    await page.locator('.message').nth(1).locator('[aria-label="Delete"]').click();
    await page.click('#choice-dialog .danger');
    await ask(page, 'two');
    await load(page, file.name, file.text);
    assert.equal(await page.locator('.entry').count(), 1);
    const all = new Set(await texts(page));
    await page.click('.branches button:not(:disabled)');
    for (const text of await texts(page)) all.add(text);
    assert.deepEqual([...all].sort(), ['You wrote: one', 'You wrote: onetwo', 'one', 'two']); // two messages in a row were sent as one
  },

  async file_that_is_none_of_ours_is_refused({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'mine');
    const node = { id: 'root', children: ['__proto__'] };
    for (const [text, why] of [
      ['not json', /x\.json is not JSON/], ['{}', /no conversations of this page/], ['{"format":"lace-conversations","version":9,"conversations":[]}', /version 9/],
      ['{"format":"lace-conversations","version":1,"conversations":[{"id":"<b>","nodes":{}}]}', /1 of 1 conversations are damaged/],
    ]) assert.match(await load(page, 'x.json', text), why);
    // What has the form is taken, and nothing in it but what the page knows.
    const hostile = { id: 'h', title: '<img src=x onerror="window.pwned=1">', nodes: {
      root: node, a: { id: 'a', parent: 'b', role: 'user', content: 'circle' }, b: { id: 'b', parent: 'a', role: 'assistant', content: 'circle too' },
      c: { id: 'c', parent: 'nowhere', role: 'user', content: '<script>window.pwned=2</script>' }, d: { id: 'd', parent: 'c', role: 'system', content: 'no role of ours' },
      e: 7, f: { id: 'f', parent: 'c', role: 'assistant', content: { toString: 1 }, files: 'x', meta: { rate: 'fast' } },
    } };
    assert.equal(await load(page, 'x.json', JSON.stringify({ format: 'lace-conversations', version: 1, conversations: [hostile] })), '1 added.');
    await page.click('.entry >> text=<img');
    await page.waitForSelector('.message');
    await page.reload();
    await page.waitForSelector('.message');
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.deepEqual(page.problems, []);
    await ask(page, 'still works');
    assert.equal(await lastAnswer(page).textContent(), 'You wrote: still works');
  },

  async conversation_is_saved_as_markdown_with_its_name({ mock }) {
    const page = await open(mock.url);
    await page.setInputFiles('#attach-file', { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('text') });
    await page.waitForSelector('#chips .chip');
    await ask(page, 'What is C# & my_var (v1.2)? a/b');
    const file = await saved(page, '#save-markdown');
    assert.equal(file.name, 'What is C# & my_var (v1.2) a b.md');
    assert.equal(file.text, '# What is C# & my_var (v1.2)? a/b\n\n## You\n\nFile: a.txt\n```\ntext\n```\n\nWhat is C# & my_var (v1.2)? a/b\n\n## mock-7b-instruct\n\nYou wrote: File: a.txt\n```\ntext\n```\n\nWhat is C# & my_var (v1.2)? a/b\n');
  },

  async phone_saves_too({ mock }) {
    for (const width of [390, 320]) {
      const page = await open(mock.url, { ...PHONE, viewport: { width, height: 700 } });
      await ask(page, 'on the go');
      const box = await page.locator('#export').boundingBox();
      assert.ok(box && box.x >= 0 && box.x + box.width <= width && box.width >= 36);
      const file = await saved(page, '#save-markdown');
      assert.equal(file.name, 'on the go.md');
    }
  },
};

const real = {
  async program_is_left_in_the_middle_and_the_text_goes_on({ server }) {
    const page = await open(server.url);
    await page.click('#settings-open');
    await page.fill('#set-max_tokens', '2000');
    await page.press('#set-max_tokens', 'Tab');
    await page.keyboard.press('Escape');
    await say(page, 'Once upon a time');
    await page.waitForFunction(() => (document.querySelector('.answer .md')?.textContent || '').length > 80);
    const seen = await lastAnswer(page).textContent();
    await page.reload();
    await page.waitForSelector('.answer .md > *');
    assert.ok((await lastAnswer(page).textContent()).startsWith(seen));
    await page.evaluate(() => localStorage.setItem('lace.settings', '{"max_tokens":8}'));
    await page.reload();
    await page.waitForSelector('.more:visible');
    const before = await lastAnswer(page).textContent();
    await page.click('.more');
    await settled(page);
    const after = await lastAnswer(page).textContent();
    assert.ok(after.startsWith(before.trimEnd()) && after.length > before.length);
  },
};

await runPageCases(mocked, real);
