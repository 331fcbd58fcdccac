// No violation that axe finds, in any state of the page: all rules, light and dark, desktop and phone. Run
// through test_axe.sh.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { ask, open, PHONE, runPageCases, say, settled } from './page.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

async function check(page, state) {
  // Colours fade in; axe must see the end.
  await page.evaluate(() => Promise.all(document.getAnimations().filter((a) => a.effect.getComputedTiming().iterations !== Infinity).map((a) => a.finished)));
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe);
  const { violations, passes } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations', 'passes'] }));
  const found = violations.flatMap((v) => v.nodes.map((n) => `${state}: ${v.id}: ${n.target.join(' ')}: ${n.failureSummary.replace(/\s+/g, ' ')}`));
  assert.deepEqual(found, []);
  assert.ok(passes.length > 15, `${state}: axe looked at the page`);
}

// A PNG of one pixel.
const DOT = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64');

const isPhone = (page) => page.viewportSize().width < 500;

async function checkAll({ mock }, options) {
  mock.state.vision = true;
  const page = await open(mock.url, { reducedMotion: 'reduce', ...options });
  await page.waitForSelector('.welcome');
  await check(page, 'welcome');
  await page.fill('#input', 'a question');
  await page.setInputFiles('#attach-file', { name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('text\n'.repeat(80)) });
  await page.waitForSelector('#chips .chip');
  await check(page, 'composer with a file');
  await page.click('#chips .chip-open');
  await check(page, 'file dialog');
  await page.keyboard.press('Escape');
  await page.press('#input', 'Enter');
  await settled(page);
  await page.locator('.message').first().locator('[aria-label="Edit"]').click();
  await check(page, 'editing');
  await page.keyboard.press('Escape');
  await page.locator('.message').first().locator('[aria-label="Delete"]').click();
  await check(page, 'delete dialog');
  await page.keyboard.press('Escape');
  await page.click('#export');
  await check(page, 'save dialog');
  await page.setInputFiles('#load-file', { name: 'x.json', mimeType: 'application/json', buffer: Buffer.from('no') });
  await page.waitForSelector('#save-note.bad');
  await check(page, 'save dialog with an error');
  await page.keyboard.press('Escape');
  await page.click('#settings-open');
  await page.fill('#set-system', 'You are brief.');
  await page.fill('#set-top_p', '0.5');
  await page.selectOption('#set-format', 'json_schema');
  await check(page, 'settings');
  await page.click('#tab-live');
  await page.waitForFunction(() => /\d/.test(document.querySelector('#pane-live .figure b').textContent));
  await check(page, 'live panel');
  await page.click('#drawer-close');
  if (isPhone(page)) {
    await page.click('#side-open');
    await check(page, 'side');
  }
  await page.click('#help');
  await check(page, 'help dialog');
  await page.keyboard.press('Escape');
  await page.click('#key-open');
  await check(page, 'key dialog');
  await page.keyboard.press('Escape');
  await page.click('#new');
  for (const name of ['markdown', 'code', 'maths', 'thinking', 'injection', 'headings', 'cut']) await ask(page, `say:${name}`);
  await page.locator('.reasoning:visible summary').first().click();
  await page.click('.answer:last-child [aria-label="Another answer"]');
  await settled(page);
  await check(page, 'conversation');
  await page.click('#settings-open');
  await page.selectOption('#set-format', 'text');
  await page.selectOption('#set-tokens', 'on');
  await page.click('#drawer-close');
  await ask(page, 'say:tools');
  await check(page, 'tool calls to be answered');
  await page.click('text=Send the results');
  await settled(page);
  await page.locator('.answer').last().locator('[aria-label="Probabilities of its tokens"]').click();
  await page.locator('.tokens .token').nth(2).click();
  await check(page, 'probabilities and answered tool calls');
  await page.setInputFiles('#attach-file', { name: 'dot.png', mimeType: 'image/png', buffer: DOT });
  await page.waitForSelector('#chips .thumb');
  await check(page, 'composer with an image');
  await page.click('#chips .thumb-open');
  await check(page, 'image dialog');
  await page.keyboard.press('Escape');
  await ask(page, 'with an image');
  await check(page, 'message with an image');
  await page.click('#export');
  await page.click('#share');
  await page.waitForSelector('#share-link:visible');
  await check(page, 'save dialog with a link');
  await page.keyboard.press('Escape');
  await page.evaluate(() => (location.hash = 'prompt=A+question&system=You+are+brief&temperature=0.5'));
  await page.waitForSelector('#choice-dialog[open]');
  await check(page, 'dialog of a link');
  await page.click('#choice-dialog >> text=Cancel');
  await page.click(isPhone(page) ? '#side-open' : '#new');
  if (isPhone(page)) await page.click('#new');
  mock.state.fail = { status: 503, message: 'the queue is full', headers: { 'Retry-After': '3' } };
  await ask(page, 'one more');
  await check(page, 'error');
  mock.state.fail = null;
  await say(page, 'say:slow');
  await page.waitForSelector('.streaming');
  await check(page, 'streaming');
}

const cases = {
  async axe_finds_nothing_on_the_desktop_in_light(given) {
    await checkAll(given, { colorScheme: 'light' });
  },
  async axe_finds_nothing_on_the_desktop_in_dark(given) {
    await checkAll(given, { colorScheme: 'dark' });
  },
  async axe_finds_nothing_on_the_phone_in_light(given) {
    await checkAll(given, { ...PHONE, colorScheme: 'light' });
  },
  async axe_finds_nothing_on_the_phone_in_dark(given) {
    await checkAll(given, { ...PHONE, colorScheme: 'dark' });
  },
  async page_has_one_heading_of_the_first_level_and_tabs_in_their_list({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'Hello');
    assert.deepEqual(await page.locator('h1').allTextContents(), ['Hello']);
    await page.click('#settings-open');
    assert.deepEqual(await page.$$eval('[role=tablist] > *', (all) => all.map((e) => e.getAttribute('role'))), ['tab', 'tab']);
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'tab-live');
    assert.equal(await page.locator('#pane-live').isVisible(), true);
  },
};

await runPageCases(cases);
